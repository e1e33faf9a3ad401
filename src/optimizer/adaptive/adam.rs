use crate::part::prelude::*;
use crate::transform::{ScaleByAdam, ScaleByLearningRate, scale_by_adam, scale_by_learning_rate};

/// Adam: a moving average of the gradient, divided by the root of a moving average of its square.
///
/// # Arithmetic
///
/// ```text
/// chain(scale_by_adam(b1, b2, eps, eps_root, nesterov), scale_by_learning_rate(learning_rate))
/// ```
///
/// Defaults: `b1` 0.9, `b2` 0.999, `eps` 1e-8, `eps_root` 0, no nesterov.
///
/// # Cost
///
/// Two floats of state per parameter; one pass.
///
/// # Errors
///
/// `init` fails if an argument is out of the range that [`scale_by_adam`] gives.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
///
/// let optimizer = adam(0.1);
/// let mut params = vec![1.0_f32, 1.0];
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &vec![10.0_f32, -0.01], &mut state)?;
/// approx::assert_relative_eq!(&params[..], &[0.9, 1.1][..], max_relative = 1e-5);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Kingma and Ba, [Adam: a method for stochastic optimization](https://arxiv.org/abs/1412.6980), 2014. Optax,
/// [`adam`](https://optax.readthedocs.io/en/latest/api/optimizers.html). Differs: moments of 16-bit leaves are `f32`
/// unless `mu_dtype` or `nu_dtype` is set. PyTorch's `Adam(weight_decay=...)` adds L2 regularization; here that is
/// `chain((add_decayed_weights(w), adam(lr)))`.
pub fn adam(learning_rate: impl IntoHyperparam) -> Adam {
    Adam { chain: (scale_by_adam(), scale_by_learning_rate(learning_rate)) }
}

optimizer! {
    /// See [`adam`](adam()).
    #[derive(PartialEq)]
    Adam as "adam" = (ScaleByAdam, ScaleByLearningRate) {
        hyperparams:
            learning_rate [1.learning_rate] "Sets the learning rate.",
            b1 [0.b1] "Sets the decay of the first moment, in `[0, 1)`.",
            b2 [0.b2] "Sets the decay of the second moment, in `[0, 1)`.",
            eps [0.eps] "Sets the epsilon added to the root.",
            eps_root [0.eps_root] "Sets the epsilon added under the root.";
        options:
            mu_dtype: Option<DType> [0.mu_dtype] "Sets the dtype of the first moment.",
            nu_dtype: Option<DType> [0.nu_dtype] "Sets the dtype of the second moment.",
            nesterov: bool [0.nesterov] "Sets whether the first moment is Nesterov momentum.",
            momentum_decay: Option<f64> [0.momentum_decay] "Sets the growth rate of Nesterov's momentum.";
    }
}
