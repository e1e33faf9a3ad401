use crate::part::prelude::*;
use crate::select::Mask;
use crate::transform::*;
use crate::wrapper::{Masked, masked};

/// LAMB: [`adamw`](crate::adamw()) with layer-wise trust ratios, for large batches.
///
/// # Arithmetic
///
/// ```text
/// chain(scale_by_adam(b1, b2, eps, eps_root),
///       masked(add_decayed_weights(weight_decay), mask),
///       scale_by_trust_ratio(),
///       scale_by_learning_rate(learning_rate))
/// ```
///
/// Defaults: `b1` 0.9, `b2` 0.999, `eps` 1e-6, `eps_root` 0, `weight_decay` 0 on all leaves.
///
/// # Cost
///
/// Two floats of state per parameter. Two passes, which store the updates in between: one more float per parameter, not
/// part of the state.
///
/// # Errors
///
/// `init` fails if an argument is out of the range that [`scale_by_adam`] gives, or a pattern of the mask matches no
/// leaf.
///
/// # Example
///
/// The parameters' norm is 5, and so is the first step's for a learning rate of 1:
///
/// ```
/// use gradchain::prelude::*;
///
/// let optimizer = lamb(1.0);
/// let mut params = vec![3.0_f64, 4.0];
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &vec![0.0_f64, 0.5], &mut state)?;
/// approx::assert_relative_eq!(params[1], 4.0 - 5.0, max_relative = 1e-12);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// You and others, [Large batch optimization for deep learning: training BERT in 76
/// minutes](https://arxiv.org/abs/1904.00962), 2019, algorithm 2, with the identity for φ. Optax,
/// [`lamb`](https://optax.readthedocs.io/en/latest/api/optimizers.html). Differs: a mask is a [`Mask`]; moments of
/// 16-bit leaves are `f32` unless `mu_dtype` or `nu_dtype` is set. PyTorch has no LAMB.
pub fn lamb(learning_rate: impl IntoHyperparam) -> Lamb {
    let decay = masked(add_decayed_weights(0.0), Mask::all());
    let rate = scale_by_learning_rate(learning_rate);
    Lamb { chain: (scale_by_adam().eps(1e-6), decay, scale_by_trust_ratio(), rate) }
}

optimizer! {
    /// See [`lamb`](lamb()).
    Lamb as "lamb" = (ScaleByAdam, Masked<AddDecayedWeights>, ScaleByTrustRatio, ScaleByLearningRate) {
        hyperparams:
            learning_rate [3.learning_rate] "Sets the learning rate.",
            b1 [0.b1] "Sets the decay of the first moment, in `[0, 1)`.",
            b2 [0.b2] "Sets the decay of the second moment, in `[0, 1)`.",
            eps [0.eps] "Sets the epsilon added to the root.",
            eps_root [0.eps_root] "Sets the epsilon added under the root.",
            weight_decay [1.inner.weight_decay] "Sets the weight decay, added before the trust ratio.";
        options:
            mask: Mask [1.mask] "Sets which leaves decay.",
            mu_dtype: Option<DType> [0.mu_dtype] "Sets the dtype of the first moment.",
            nu_dtype: Option<DType> [0.nu_dtype] "Sets the dtype of the second moment.";
    }
}
