use crate::part::prelude::*;
use crate::select::Mask;
use crate::transform::*;
use crate::wrapper::{Masked, masked};

/// AdamW: [`adam`](crate::adam()) with decoupled weight decay, which is not divided by the second moment.
///
/// # Arithmetic
///
/// ```text
/// chain(scale_by_adam(b1, b2, eps, eps_root, nesterov),
///       masked(add_decayed_weights(weight_decay), mask),
///       scale_by_learning_rate(learning_rate))
/// ```
///
/// Defaults: `b1` 0.9, `b2` 0.999, `eps` 1e-8, `eps_root` 0, `weight_decay` 1e-4 on all leaves, no nesterov.
///
/// # Cost
///
/// Two floats of state per parameter; one pass, mask or not.
///
/// # Errors
///
/// `init` fails if an argument is out of range, or a pattern of the mask matches no leaf.
///
/// # Example
///
/// With a gradient of zero only the decay is left: `1 − 0.1·0.5`.
///
/// ```
/// use gradchain::prelude::*;
///
/// let optimizer = adamw(0.1).weight_decay(0.5).mask(Mask::path("0"));
/// let mut params = (1.0_f64, 1.0_f64);
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &(0.0_f64, 0.0_f64), &mut state)?;
/// assert_eq!(params, (0.95, 1.0));
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Loshchilov and Hutter, [Decoupled weight decay regularization](https://arxiv.org/abs/1711.05101), 2017. Optax,
/// [`adamw`](https://optax.readthedocs.io/en/latest/api/optimizers.html). Differs: a mask is a [`Mask`]; its state does
/// not depend on whether one is given. PyTorch's `AdamW` multiplies the parameter by `1 − lr·λ` before the step, which
/// is the same but for rounding; its default decay is 1e-2.
pub fn adamw(learning_rate: impl IntoHyperparam) -> Adamw {
    let decay = masked(add_decayed_weights(1e-4), Mask::all());
    Adamw { chain: (scale_by_adam(), decay, scale_by_learning_rate(learning_rate)) }
}

optimizer! {
    /// See [`adamw`].
    Adamw as "adamw" = (ScaleByAdam, Masked<AddDecayedWeights>, ScaleByLearningRate) {
        hyperparams:
            learning_rate [2.learning_rate] "Sets the learning rate.",
            b1 [0.b1] "Sets the decay of the first moment, in `[0, 1)`.",
            b2 [0.b2] "Sets the decay of the second moment, in `[0, 1)`.",
            eps [0.eps] "Sets the epsilon added to the root.",
            eps_root [0.eps_root] "Sets the epsilon added under the root.",
            weight_decay [1.inner.weight_decay] "Sets the decoupled weight decay, multiplied by the learning rate.";
        options:
            mask: Mask [1.mask] "Sets which leaves decay.",
            mu_dtype: Option<DType> [0.mu_dtype] "Sets the dtype of the first moment.",
            nu_dtype: Option<DType> [0.nu_dtype] "Sets the dtype of the second moment.",
            nesterov: bool [0.nesterov] "Sets whether the first moment is Nesterov momentum.",
            momentum_decay: Option<f64> [0.momentum_decay] "Sets the growth rate of Nesterov's momentum.";
    }
}
