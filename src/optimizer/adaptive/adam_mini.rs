use crate::part::prelude::*;
use crate::select::Mask;
use crate::transform::*;
use crate::wrapper::{Masked, masked};

/// Adam-mini: [`adamw`](crate::adamw()) with one second moment for each block of elements, which halves its state.
///
/// # Arithmetic
///
/// ```text
/// chain(scale_by_adam_mini(b1, b2, eps, blocks),
///       masked(add_decayed_weights(weight_decay), mask),
///       scale_by_learning_rate(learning_rate))
/// ```
///
/// Defaults: `b1` 0.9, `b2` 0.999, `eps` 1e-8, `weight_decay` 0 on all leaves; see [`Blocks`] for those of the blocks.
///
/// # Cost
///
/// One float of state per parameter and one per block. Two passes, which store the updates in between: one more float
/// per parameter, not part of the state.
///
/// # Errors
///
/// `init` fails if an argument is out of the range that [`scale_by_adam_mini`] gives, or a pattern of the mask matches
/// no leaf.
///
/// # Example
///
/// The mean square of the vector is 4:
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::optimizer::adam_mini;
///
/// let optimizer = adam_mini(0.5).eps(0.0);
/// let mut params = vec![1.0_f64, 1.0];
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &vec![8.0_f64.sqrt(), 0.0], &mut state)?;
/// approx::assert_relative_eq!(&params[..], &[1.0 - 0.5 * 2.0_f64.sqrt(), 1.0][..], max_relative = 1e-12);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Zhang and others, [Adam-mini: use fewer learning rates to gain more](https://arxiv.org/abs/2406.16793), 2024,
/// algorithm 1. Optax has none. Differs: see [`scale_by_adam_mini`].
pub fn adam_mini(learning_rate: impl IntoHyperparam) -> AdamMini {
    let decay = masked(add_decayed_weights(0.0), Mask::all());
    AdamMini { chain: (scale_by_adam_mini(), decay, scale_by_learning_rate(learning_rate)) }
}

optimizer! {
    /// See [`adam_mini`](adam_mini()).
    AdamMini as "adam_mini" = (ScaleByAdamMini, Masked<AddDecayedWeights>, ScaleByLearningRate) {
        hyperparams:
            learning_rate [2.learning_rate] "Sets the learning rate.",
            b1 [0.b1] "Sets the decay of the first moment, in `[0, 1)`.",
            b2 [0.b2] "Sets the decay of the second moment, in `[0, 1)`.",
            eps [0.eps] "Sets the epsilon added to the root.",
            weight_decay [1.inner.weight_decay] "Sets the decoupled weight decay, multiplied by the learning rate.";
        options:
            mask: Mask [1.mask] "Sets which leaves decay.",
            blocks: Blocks [0.blocks] "Sets the blocks of a leaf whose elements share a second moment.",
            mu_dtype: Option<DType> [0.mu_dtype] "Sets the dtype of the first moment.";
    }
}
