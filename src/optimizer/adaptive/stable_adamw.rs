use crate::part::prelude::*;
use crate::select::Mask;
use crate::transform::{ScaleByLearningRate, ScaleByStableAdam, scale_by_learning_rate, scale_by_stable_adam};

/// StableAdamW: [`adamw`](crate::adamw()) with Adafactor's update clipping, per leaf.
///
/// It replaces gradient clipping: it needs no threshold, and a leaf that spikes does not slow the others.
///
/// # Arithmetic
///
/// ```text
/// chain(scale_by_stable_adam(b1, b2, eps, weight_decay, mask),
///       scale_by_learning_rate(learning_rate))
/// ```
///
/// Defaults: `b1` 0.9, `b2` 0.99, `eps` 1e-6, `weight_decay` 1e-4 on all leaves.
///
/// # Cost
///
/// Two floats of state per parameter. Two passes, which store the updates in between: one more float per parameter, not
/// part of the state.
///
/// # Errors
///
/// `init` fails if an argument is out of the range that [`scale_by_stable_adam`] gives, or a pattern of the mask
/// matches no leaf.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::optimizer::stable_adamw;
///
/// let optimizer = stable_adamw(0.1).weight_decay(0.5).mask(Mask::path("1"));
/// let mut params = (1.0_f64, 1.0_f64);
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &(3.0_f64, 0.0_f64), &mut state)?;
/// // Adam's step of the learning rate, and the decay alone.
/// approx::assert_abs_diff_eq!(params.0, 0.9, epsilon = 1e-6);
/// assert_eq!(params.1, 0.95);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Wortsman, Dettmers, Zettlemoyer, Morcos, Farhadi and Schmidt, [Stable and low-precision training for large-scale
/// vision-language models](https://arxiv.org/abs/2304.13013), 2023, algorithm 2. Optax has none. Differs: see
/// [`scale_by_stable_adam`].
pub fn stable_adamw(learning_rate: impl IntoHyperparam) -> StableAdamw {
    let adam = scale_by_stable_adam().weight_decay(1e-4);
    StableAdamw { chain: (adam, scale_by_learning_rate(learning_rate)) }
}

optimizer! {
    /// See [`stable_adamw`](stable_adamw()).
    StableAdamw as "stable_adamw" = (ScaleByStableAdam, ScaleByLearningRate) {
        hyperparams:
            learning_rate [1.learning_rate] "Sets the learning rate.",
            b1 [0.b1] "Sets the decay of the first moment, in `[0, 1)`.",
            b2 [0.b2] "Sets the decay of the second moment, in `[0, 1)`.",
            eps [0.eps] "Sets the epsilon added to the root; positive.",
            weight_decay [0.weight_decay] "Sets the decoupled weight decay, multiplied by the learning rate.";
        options:
            mask: Mask [0.mask] "Sets which leaves decay.",
            mu_dtype: Option<DType> [0.mu_dtype] "Sets the dtype of the first moment.",
            nu_dtype: Option<DType> [0.nu_dtype] "Sets the dtype of the second moment.";
    }
}
