use crate::part::prelude::*;
use crate::select::Mask;
use crate::transform::*;
use crate::wrapper::{Masked, masked};

/// MARS-AdamW: [`adamw`](crate::adamw()) with variance reduction by the previous gradient.
///
/// # Arithmetic
///
/// ```text
/// chain(reduce_variance(gamma, b1),
///       clip_by_block_norm(max_norm),
///       scale_by_adam(b1, b2, eps),
///       masked(add_decayed_weights(weight_decay), mask),
///       scale_by_learning_rate(learning_rate))
/// ```
///
/// Defaults: `b1` 0.95, `b2` 0.99, `eps` 1e-8, `gamma` 0.025, `max_norm` 1, `weight_decay` 0 on all leaves.
///
/// # Cost
///
/// Three floats of state per parameter. Two passes, which store the corrected gradients in between: one more float per
/// parameter, not part of the state.
///
/// # Errors
///
/// `init` fails if an argument is out of the range that [`reduce_variance`], [`clip_by_block_norm`] and
/// [`scale_by_adam`] give, or a pattern of the mask matches no leaf.
///
/// # Example
///
/// The first step is Adam's:
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::optimizer::mars;
///
/// let optimizer = mars(0.1).eps(0.0);
/// let mut params = vec![1.0_f64, 1.0];
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &vec![0.5_f64, -0.2], &mut state)?;
/// approx::assert_relative_eq!(&params[..], &[0.9, 1.1][..], max_relative = 1e-12);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Yuan, Liu, Wu, Zhou and Gu, [MARS: unleashing the power of variance reduction for training large
/// models](https://arxiv.org/abs/2411.10438), 2024, algorithm 2, in the approximate form, which needs no second
/// gradient. Optax has none. Differs: all leaves are treated alike, where the authors' code gives those of fewer than
/// two axes to AdamW with other hyperparameters; [`partition`](crate::partition) does that.
pub fn mars(learning_rate: impl IntoHyperparam) -> Mars {
    let decay = masked(add_decayed_weights(0.0), Mask::all());
    let adam = scale_by_adam().b1(0.95).b2(0.99);
    let rate = scale_by_learning_rate(learning_rate);
    Mars { chain: (reduce_variance(), clip_by_block_norm(1.0), adam, decay, rate) }
}

optimizer! {
    /// See [`mars`](mars()).
    Mars as "mars" = (ReduceVariance, ClipByBlockNorm, ScaleByAdam, Masked<AddDecayedWeights>, ScaleByLearningRate) {
        hyperparams:
            learning_rate [4.learning_rate] "Sets the learning rate.",
            b1 [2.b1] "Sets the decay of the first moment, in `[0, 1)`.",
            b2 [2.b2] "Sets the decay of the second moment, in `[0, 1)`.",
            eps [2.eps] "Sets the epsilon added to the root.",
            gamma [0.gamma]
                "Sets the weight of the difference from the previous gradient; 0 gives AdamW with clipped gradients.",
            max_norm [1.max_norm] "Sets the largest norm of a leaf's corrected gradient.",
            weight_decay [3.inner.weight_decay] "Sets the decoupled weight decay, multiplied by the learning rate.";
        options:
            mask: Mask [3.mask] "Sets which leaves decay.",
            mu_dtype: Option<DType> [2.mu_dtype] "Sets the dtype of the first moment.",
            nu_dtype: Option<DType> [2.nu_dtype] "Sets the dtype of the second moment.";
        then share;
    }
}

impl Mars {
    /// Passes the mean's decay to the correction.
    fn share(&mut self) {
        self.chain.0.b1.clone_from(&self.chain.2.b1);
    }
}
