use crate::part::prelude::*;
use crate::select::Mask;
use crate::transform::*;
use crate::wrapper::{Masked, masked};

/// Shampoo: gradients times inverse roots of their summed outer products on both sides, then momentum.
///
/// Needs the feature `faer`.
///
/// # Arithmetic
///
/// ```text
/// chain(scale_by_shampoo(b2, eps, precondition_frequency, start_preconditioning_step, max_precond_dim),
///       trace(momentum, nesterov),
///       masked(add_decayed_weights(weight_decay), mask),
///       scale_by_learning_rate(learning_rate))
/// ```
///
/// Leaves with two axes are matrices, unless [`weight_dimension_numbers`](Shampoo::weight_dimension_numbers) says
/// otherwise; other leaves are scaled element by element.
///
/// Defaults: `b2` 1, `eps` 1e-6, `momentum` 0.9, no nesterov, `weight_decay` 0 on all leaves, `precondition_frequency`
/// 10, `start_preconditioning_step` 0, `max_precond_dim` 1024.
///
/// # Cost
///
/// See [`scale_by_shampoo`], and one float of state per parameter.
///
/// # Errors
///
/// `init` fails if an argument is out of the range that [`scale_by_shampoo`] and [`trace`] give, or a pattern of the
/// mask matches no leaf.
///
/// # Example
///
/// The gradients of a scalar are divided by the root of the sum of their squares:
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::optimizer::shampoo;
///
/// let optimizer = shampoo(0.5).momentum(0.0).eps(1e-12);
/// let mut params = 1.0_f64;
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &3.0, &mut state)?;
/// optimizer.step(&mut params, &-4.0, &mut state)?;
/// approx::assert_relative_eq!(params, 1.0 - 0.5 + 0.5 * 0.8, max_relative = 1e-12);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Gupta, Koren and Singer, [Shampoo: preconditioned stochastic tensor optimization](https://arxiv.org/abs/1802.09568),
/// 2018, algorithm 1. Optax has none. Differs: see [`scale_by_shampoo`]; [`graft`](crate::wrapper::graft()) applies
/// another optimizer's step size: `graft(shampoo(1.0).momentum(0.0), adam(1e-3))`.
pub fn shampoo(learning_rate: impl IntoHyperparam) -> Shampoo {
    let decay = masked(add_decayed_weights(0.0), Mask::all());
    Shampoo { chain: (scale_by_shampoo(), trace(0.9), decay, scale_by_learning_rate(learning_rate)) }
}

optimizer! {
    /// See [`shampoo`](shampoo()).
    Shampoo as "shampoo" = (ScaleByShampoo, Trace, Masked<AddDecayedWeights>, ScaleByLearningRate) {
        hyperparams:
            learning_rate [3.learning_rate] "Sets the learning rate.",
            b2 [0.b2] "Sets the decay of the factors, in `(0, 1]`; 1 is no decay.",
            eps [0.eps] "Sets the epsilon added to the eigenvalues; positive.",
            momentum [1.decay] "Sets the decay of the momentum.",
            weight_decay [2.inner.weight_decay] "Sets the decoupled weight decay, multiplied by the learning rate.";
        options:
            mask: Mask [2.mask] "Sets which leaves decay.",
            nesterov: bool [1.nesterov] "Sets whether the momentum is Nesterov's.",
            accumulator_dtype: Option<DType> [1.accumulator_dtype] "Sets the dtype of the momentum.",
            weight_dimension_numbers: WeightDimensionNumbers [0.weight_dimension_numbers]
                "Sets which axes of a leaf are the rows and columns of a matrix.";
        integers:
            precondition_frequency: u64 [0.precondition_frequency] "Sets the number of steps from one root to the \
                                                                    next; at least 1.",
            start_preconditioning_step: u64 [0.start_preconditioning_step]
                "Sets the number of updates of a matrix before the first preconditioned one.",
            max_precond_dim: usize [0.max_precond_dim] "Sets the length of the longest side with a factor.";
    }
}
