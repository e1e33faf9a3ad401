use crate::part::prelude::*;
use crate::select::Mask;
use crate::transform::*;
use crate::wrapper::{Masked, masked};

/// Lion: steps of the learning rate, along the sign of the momentum.
///
/// # Arithmetic
///
/// ```text
/// chain(scale_by_lion(b1, b2, mode, smooth_beta),
///       masked(add_decayed_weights(weight_decay), mask),
///       scale_by_learning_rate(learning_rate))
/// ```
///
/// Defaults: `b1` 0.9, `b2` 0.99, `weight_decay` 1e-3 on all leaves, mode hard, `smooth_beta` 1. Since every step has
/// the size of the learning rate, good learning rates are 3 to 10 times smaller than AdamW's, and good weight decays
/// larger by the same factor.
///
/// # Cost
///
/// One float of state per parameter; one pass, mask or not.
///
/// # Errors
///
/// `init` fails if an argument is out of the range that [`scale_by_lion`] gives, or a pattern of the mask matches no
/// leaf.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
///
/// let optimizer = lion(0.25).weight_decay(0.0);
/// let mut params = vec![1.0_f32, 1.0];
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &vec![1e-3_f32, -5.0], &mut state)?;
/// assert_eq!(params, [0.75, 1.25]);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Chen and others, [Symbolic discovery of optimization algorithms](https://arxiv.org/abs/2302.06675), 2023, program 1.
/// Optax, [`lion`](https://optax.readthedocs.io/en/latest/api/optimizers.html). Differs: a mask is a [`Mask`]; `mode`
/// and `smooth_beta` can be set here too; the mean of a 16-bit leaf is `f32` unless `mu_dtype` is set. PyTorch has no
/// Lion; the authors' version for it has no decay by default.
pub fn lion(learning_rate: impl IntoHyperparam) -> Lion {
    let decay = masked(add_decayed_weights(1e-3), Mask::all());
    Lion { chain: (scale_by_lion(), decay, scale_by_learning_rate(learning_rate)) }
}

optimizer! {
    /// See [`lion`](lion()).
    Lion as "lion" = (ScaleByLion, Masked<AddDecayedWeights>, ScaleByLearningRate) {
        hyperparams:
            learning_rate [2.learning_rate] "Sets the learning rate.",
            b1 [0.b1] "Sets the weight of the running mean in the update, in `[0, 1]`.",
            b2 [0.b2] "Sets the decay of the mean, in `[0, 1]`.",
            weight_decay [1.inner.weight_decay] "Sets the decoupled weight decay, multiplied by the learning rate.",
            smooth_beta [0.smooth_beta] "Sets the slope at zero of mode smooth.";
        options:
            mask: Mask [1.mask] "Sets which leaves decay.",
            mu_dtype: Option<DType> [0.mu_dtype] "Sets the dtype of the mean.",
            mode: LionMode [0.mode] "Sets the replacement of the sign.";
    }
}
