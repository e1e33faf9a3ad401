use crate::part::prelude::*;
use crate::select::Mask;
use crate::transform::*;
use crate::wrapper::{Cautious, Masked, cautious, masked};

/// Cautious Lion: [`lion`](crate::lion()) without the elements of a step that oppose the gradient.
///
/// # Arithmetic
///
/// ```text
/// chain(cautious(scale_by_lion(b1, b2, mode, smooth_beta), xi, against_gradient=false),
///       masked(add_decayed_weights(weight_decay), mask),
///       scale_by_learning_rate(learning_rate))
/// ```
///
/// Defaults: those of [`lion`](crate::lion()), and `xi` 1. Hyperparameters tuned for Lion need no change.
///
/// # Cost
///
/// One float of state per parameter. Two passes, which store the updates in between: one more float per parameter, not
/// part of the state.
///
/// # Errors
///
/// `init` fails if an argument is out of the range that [`scale_by_lion`] and [`cautious`] give, or a pattern of the
/// mask matches no leaf.
///
/// # Example
///
/// Two of three elements have a gradient, so the step is `3 / (2 + 1)` of Lion's:
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::optimizer::cautious_lion;
///
/// let optimizer = cautious_lion(0.25).weight_decay(0.0);
/// let mut params = vec![1.0_f32; 3];
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &vec![1e-3_f32, -5.0, 0.0], &mut state)?;
/// assert_eq!(params, [0.75, 1.25, 1.0]);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Liang, Chen, Liu and Liu, [Cautious optimizers: improving training with one line of
/// code](https://arxiv.org/abs/2411.16085), 2024. Optax has none. Differs: see [`cautious`].
pub fn cautious_lion(learning_rate: impl IntoHyperparam) -> CautiousLion {
    let decay = masked(add_decayed_weights(1e-3), Mask::all());
    let lion = cautious(scale_by_lion()).against_gradient(false);
    CautiousLion { chain: (lion, decay, scale_by_learning_rate(learning_rate)) }
}

optimizer! {
    /// See [`cautious_lion`](cautious_lion()).
    CautiousLion as "cautious_lion" = (Cautious<ScaleByLion>, Masked<AddDecayedWeights>, ScaleByLearningRate) {
        hyperparams:
            learning_rate [2.learning_rate] "Sets the learning rate.",
            b1 [0.inner.b1] "Sets the weight of the running mean in the update, in `[0, 1]`.",
            b2 [0.inner.b2] "Sets the decay of the mean, in `[0, 1]`.",
            weight_decay [1.inner.weight_decay] "Sets the decoupled weight decay, multiplied by the learning rate.",
            smooth_beta [0.inner.smooth_beta] "Sets the slope at zero of mode smooth.",
            xi [0.xi] "Sets the epsilon added to the number of agreeing elements; positive.";
        options:
            mask: Mask [1.mask] "Sets which leaves decay.",
            mu_dtype: Option<DType> [0.inner.mu_dtype] "Sets the dtype of the mean.",
            mode: LionMode [0.inner.mode] "Sets the replacement of the sign.";
    }
}
