use crate::part::prelude::*;
use crate::transform::*;

/// Optimistic Adam: [`adam`](crate::adam()) that also steps along the latest change of its direction.
///
/// It is for games and saddle points.
///
/// # Arithmetic
///
/// ```text
/// chain(scale_by_adam(b1, b2, eps, eps_root, nesterov),
///       scale_by_optimistic_gradient(alpha, beta),
///       scale_by_learning_rate(learning_rate))
/// ```
///
/// Defaults: `alpha` and `beta` 1, `b1` 0.9, `b2` 0.999, `eps` 1e-8, `eps_root` 0, nesterov.
///
/// # Cost
///
/// Three floats of state per parameter; one pass.
///
/// # Errors
///
/// `init` fails if an argument is out of the range that [`scale_by_adam`] or [`scale_by_optimistic_gradient`] gives.
///
/// # Example
///
/// With both decays 0 Adam's direction is the sign of the gradient. The second step is `0.5·(1 + (1 − (−1))) = 1.5`:
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::optimizer::optimistic_adam_v2;
///
/// let optimizer = optimistic_adam_v2(0.5).b1(0.0).b2(0.0).eps(0.0);
/// let mut params = 0.0_f64;
/// let mut state = optimizer.init(&params)?;
/// for (gradient, expected) in [(4.0, -0.5), (-2.0, 1.0)] {
///     optimizer.step(&mut params, &gradient, &mut state)?;
///     assert_eq!(params, expected);
/// }
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Daskalakis, Ilyas, Syrgkanis and Zeng, [Training GANs with optimism](https://arxiv.org/abs/1711.00141), 2017,
/// algorithm 1. Optax, [`optimistic_adam_v2`](https://optax.readthedocs.io/en/latest/api/optimizers.html). Differs:
/// `alpha` and `beta` may be schedules. PyTorch has none.
pub fn optimistic_adam_v2(learning_rate: impl IntoHyperparam) -> OptimisticAdamV2 {
    let adam = scale_by_adam().nesterov(true);
    OptimisticAdamV2 { chain: (adam, scale_by_optimistic_gradient(), scale_by_learning_rate(learning_rate)) }
}

optimizer! {
    /// See [`optimistic_adam_v2`](optimistic_adam_v2()).
    #[derive(PartialEq)]
    OptimisticAdamV2 as "optimistic_adam_v2" = (ScaleByAdam, ScaleByOptimisticGradient, ScaleByLearningRate) {
        hyperparams:
            learning_rate [2.learning_rate] "Sets the learning rate.",
            alpha [1.alpha] "Sets the weight of Adam's direction.",
            beta [1.beta] "Sets the weight of its change.",
            b1 [0.b1] "Sets the decay of the first moment, in `[0, 1)`.",
            b2 [0.b2] "Sets the decay of the second moment, in `[0, 1)`.",
            eps [0.eps] "Sets the epsilon added to the root.",
            eps_root [0.eps_root] "Sets the epsilon added under the root.";
        options:
            mu_dtype: Option<DType> [0.mu_dtype] "Sets the dtype of the first moment.",
            nu_dtype: Option<DType> [0.nu_dtype] "Sets the dtype of the second moment.",
            nesterov: bool [0.nesterov] "Sets whether the first moment is Nesterov momentum.";
    }
}
