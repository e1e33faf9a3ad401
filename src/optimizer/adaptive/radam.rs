use crate::schedule::IntoHyperparam;
use crate::transform::{ScaleByLearningRate, ScaleByRadam, scale_by_learning_rate, scale_by_radam};

/// RAdam: [`adam`](crate::adam()) with a built-in warm-up, which ignores the second moment until it is reliable.
///
/// # Arithmetic
///
/// ```text
/// chain(scale_by_radam(b1, b2, eps, eps_root, threshold, nesterov), scale_by_learning_rate(learning_rate))
/// ```
///
/// Defaults: `b1` 0.9, `b2` 0.999, `eps` 1e-8, `eps_root` 0, `threshold` 5, no nesterov.
///
/// # Cost
///
/// Two floats of state per parameter; one pass.
///
/// # Errors
///
/// `init` fails if an argument is out of the range that [`scale_by_radam`](crate::transform::scale_by_radam) gives.
///
/// # Example
///
/// The first step is one of gradient descent:
///
/// ```
/// use gradchain::prelude::*;
///
/// let optimizer = radam(0.5);
/// let mut params = 0.0_f64;
/// let mut state = optimizer.init(&params)?;
/// for (gradient, expected) in [(8.0, -4.0)] {
///     optimizer.step(&mut params, &gradient, &mut state)?;
///     approx::assert_relative_eq!(params, expected, max_relative = 1e-12);
/// }
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Liu and others, [On the variance of the adaptive learning rate and beyond](https://arxiv.org/abs/1908.03265), 2019.
/// Optax, [`radam`](https://optax.readthedocs.io/en/latest/api/optimizers.html). Differs: as
/// [`scale_by_radam`](crate::transform::scale_by_radam). PyTorch's `RAdam(weight_decay=...)` adds L2 regularization;
/// here that is an [`add_decayed_weights`](crate::add_decayed_weights) before this.
pub fn radam(learning_rate: impl IntoHyperparam) -> Radam {
    Radam { chain: (scale_by_radam(), scale_by_learning_rate(learning_rate)) }
}

optimizer! {
    /// See [`radam`](radam()).
    #[derive(PartialEq)]
    Radam as "radam" = (ScaleByRadam, ScaleByLearningRate) {
        hyperparams:
            learning_rate [1.learning_rate] "Sets the learning rate.",
            b1 [0.b1] "Sets the decay of the first moment, in `[0, 1)`.",
            b2 [0.b2] "Sets the decay of the second moment, in `[0, 1)`.",
            eps [0.eps] "Sets the epsilon added to the root.",
            eps_root [0.eps_root] "Sets the epsilon added under the root.",
            threshold [0.threshold] "Sets the effective number of gradients in the second moment from which it is \
                                     used.";
        options:
            nesterov: bool [0.nesterov] "Sets whether the first moment is Nesterov momentum.";
    }
}
