use crate::schedule::IntoHyperparam;
use crate::select::Mask;
use crate::transform::*;
use crate::wrapper::{Masked, masked};

/// LARS: momentum with layer-wise trust ratios (steps proportional to each leaf's norm), for large batches.
///
/// # Arithmetic
///
/// ```text
/// chain(masked(add_decayed_weights(weight_decay), weight_decay_mask),
///       masked(scale_by_trust_ratio(trust_coefficient, eps), trust_ratio_mask),
///       scale_by_learning_rate(learning_rate),
///       trace(momentum, nesterov))
/// ```
///
/// Defaults: `weight_decay` 0, `trust_coefficient` 0.001, `eps` 0, `momentum` 0.9, no nesterov, both masks all leaves.
/// Masks usually exclude biases and the scales of normalizations.
///
/// # Cost
///
/// One float of state per parameter. Two passes; the first reads and reduces.
///
/// # Errors
///
/// `init` fails if an argument is out of the range that the parts give, or a pattern of a mask matches no leaf.
///
/// # Example
///
/// The parameters' norm is 5, the gradient's 10, so the step has norm 5:
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::optimizer::lars;
///
/// let optimizer = lars(1.0).trust_coefficient(1.0);
/// let mut params = vec![3.0_f64, 4.0];
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &vec![0.0_f64, 10.0], &mut state)?;
/// assert_eq!(params, [3.0, 4.0 - 5.0]);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// You, Gitman and Ginsburg, [Large batch training of convolutional networks](https://arxiv.org/abs/1708.03888), 2017,
/// algorithm 1. Optax, [`lars`](https://optax.readthedocs.io/en/latest/api/optimizers.html). Differs: a mask is a
/// [`Mask`]; norms are summed in `f64`. The paper's norm of a step is `‖g‖ + weight_decay·‖p‖`, here and in Optax it is
/// `‖g + weight_decay·p‖`.
pub fn lars(learning_rate: impl IntoHyperparam) -> Lars {
    let decay = masked(add_decayed_weights(0.0), Mask::all());
    let ratio = masked(scale_by_trust_ratio().trust_coefficient(1e-3), Mask::all());
    Lars { chain: (decay, ratio, scale_by_learning_rate(learning_rate), trace(0.9)) }
}

optimizer! {
    /// See [`lars`](lars()).
    Lars as "lars" = (Masked<AddDecayedWeights>, Masked<ScaleByTrustRatio>, ScaleByLearningRate, Trace) {
        hyperparams:
            learning_rate [2.learning_rate] "Sets the learning rate.",
            weight_decay [0.inner.weight_decay] "Sets the weight decay, the multiple of the parameters added to the \
                                                 gradients.",
            trust_coefficient [1.inner.trust_coefficient] "Sets the ratio of a step's norm to the parameters'.",
            eps [1.inner.eps] "Sets the epsilon added to the norm of the updates.",
            momentum [3.decay] "Sets the momentum, the decay of the sum of steps.";
        options:
            weight_decay_mask: Mask [0.mask] "Sets which leaves decay.",
            trust_ratio_mask: Mask [1.mask] "Sets the leaves whose steps are proportional to their parameters.",
            nesterov: bool [3.nesterov] "Sets whether the sum is Nesterov momentum.";
    }
}
