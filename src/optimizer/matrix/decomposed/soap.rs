use crate::schedule::IntoHyperparam;
use crate::select::Mask;
use crate::transform::*;
use crate::wrapper::{Masked, masked};

/// SOAP: [`adamw`](crate::adamw()) in the eigenbasis of Shampoo's preconditioner for matrices.
///
/// All other leaves have plain AdamW. Needs the feature `faer`.
///
/// # Arithmetic
///
/// ```text
/// chain(scale_by_soap(b1, b2, eps, shampoo_beta, precondition_frequency, max_precond_dim),
///       masked(add_decayed_weights(weight_decay), mask),
///       scale_by_learning_rate(learning_rate))
/// ```
///
/// Leaves with two axes are matrices, unless [`weight_dimension_numbers`](Soap::weight_dimension_numbers) says
/// otherwise.
///
/// Defaults: `b1` 0.95, `b2` 0.95, `eps` 1e-8, `weight_decay` 0.01 on all leaves, `shampoo_beta` as `b2`,
/// `precondition_frequency` 10, `max_precond_dim` 10000.
///
/// # Cost
///
/// See [`scale_by_soap`]: `2·(n² + m²)` more floats of state for a matrix of `n × m`, and matrix products in every
/// step.
///
/// # Errors
///
/// `init` fails if an argument is out of the range that [`scale_by_soap`] gives, or a pattern of the mask matches no
/// leaf.
///
/// # Example
///
/// A vector makes Adam's steps from the first on:
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::optimizer::soap;
///
/// let optimizer = soap(0.5).weight_decay(0.0).eps(0.0);
/// let mut params = vec![1.0_f64, 1.0];
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &vec![1e-3_f64, -2.0], &mut state)?;
/// approx::assert_relative_eq!(&params[..], &[0.5, 1.5][..], max_relative = 1e-12);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Vyas, Morwani, Zhao, Shapira, Brandfonbrener, Janson and Kakade, [SOAP: improving and stabilizing Shampoo using
/// Adam](https://arxiv.org/abs/2409.11321), 2024, algorithm 3. Optax has none. Differs: see [`scale_by_soap`].
pub fn soap(learning_rate: impl IntoHyperparam) -> Soap {
    let decay = masked(add_decayed_weights(0.01), Mask::all());
    Soap { chain: (scale_by_soap(), decay, scale_by_learning_rate(learning_rate)) }
}

optimizer! {
    /// See [`soap`](soap()).
    Soap as "soap" = (ScaleBySoap, Masked<AddDecayedWeights>, ScaleByLearningRate) {
        hyperparams:
            learning_rate [2.learning_rate] "Sets the learning rate.",
            b1 [0.b1] "Sets the decay of the first moment, in `[0, 1)`.",
            b2 [0.b2] "Sets the decay of the second moment, in `[0, 1)`.",
            eps [0.eps] "Sets the epsilon added to the root.",
            weight_decay [1.inner.weight_decay] "Sets the decoupled weight decay, multiplied by the learning rate.";
        options:
            mask: Mask [1.mask] "Sets which leaves decay.",
            shampoo_beta: Option<f64> [0.shampoo_beta] "Sets the decay of the preconditioner, in `[0, 1)`.",
            weight_dimension_numbers: WeightDimensionNumbers [0.weight_dimension_numbers]
                "Sets which axes of a leaf are the rows and columns of a matrix.";
        integers:
            precondition_frequency: u64 [0.precondition_frequency] "Sets the number of steps from one basis to the \
                                                                    next; at least 1.",
            max_precond_dim: usize [0.max_precond_dim] "Sets the largest dimension that is preconditioned.";
    }
}
