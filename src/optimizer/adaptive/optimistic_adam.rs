use crate::part::prelude::*;
use crate::transform::*;

/// Optimistic Adam in its first form; prefer [`optimistic_adam_v2`](crate::optimizer::optimistic_adam_v2()).
///
/// # Arithmetic
///
/// ```text
/// chain(scale_by_adam(b1, b2, eps, eps_root, nesterov),
///       scale_by_optimistic_gradient(learning_rate, optimism),
///       scale_by_learning_rate(1))
/// ```
///
/// Defaults: an `optimism` as large as the learning rate, `b1` 0.9, `b2` 0.999, `eps` 1e-8, `eps_root` 0, nesterov.
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
/// With both decays 0 Adam's direction is the sign of the gradient. The steps are −0.5, and then `0.5·1 + 0.25·2 = 1`:
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::optimizer::optimistic_adam;
///
/// let optimizer = optimistic_adam(0.5).optimism(0.25).b1(0.0).b2(0.0).eps(0.0);
/// let mut params = 0.0_f64;
/// let mut state = optimizer.init(&params)?;
/// for (gradient, expected) in [(4.0, -0.5), (-2.0, 0.5)] {
///     optimizer.step(&mut params, &gradient, &mut state)?;
///     assert_eq!(params, expected);
/// }
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Daskalakis, Ilyas, Syrgkanis and Zeng, [Training GANs with optimism](https://arxiv.org/abs/1711.00141), 2017,
/// algorithm 1. Optax, [`optimistic_adam`](https://optax.readthedocs.io/en/latest/api/optimizers.html), which is
/// deprecated there and takes no schedule for the learning rate, as here. Differs: the type records if the optimism has
/// its own value. PyTorch has none.
pub fn optimistic_adam(learning_rate: f64) -> OptimisticAdam {
    let adam = scale_by_adam().nesterov(true);
    OptimisticAdam { chain: (adam, scale_by_optimistic_gradient(), scale_by_learning_rate(learning_rate)) }
}

type Chain = (ScaleByAdam, ScaleByOptimisticGradient, ScaleByLearningRate);

/// See [`optimistic_adam`](optimistic_adam()). `SEPARATE` is true if the optimism differs from the learning rate.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a transformation does nothing until it is given gradients"]
pub struct OptimisticAdam<const SEPARATE: bool = false> {
    pub(crate) chain: Chain,
}

impl OptimisticAdam<false> {
    /// Sets the factor of the latest change of direction.
    pub fn optimism(self, optimism: impl IntoHyperparam) -> OptimisticAdam<true> {
        let (adam, optimistic, rate) = self.chain;
        // Each has its own factor.
        let optimistic = optimistic.alpha(rate.learning_rate).beta(optimism);
        OptimisticAdam { chain: (adam, optimistic, scale_by_learning_rate(1.0)) }
    }
}

optimizer! {
    for OptimisticAdam<false> as "optimistic_adam" = Chain {
        hyperparams:
            learning_rate [2.learning_rate] "Sets the learning rate.",
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

optimizer! {
    for OptimisticAdam<true> as "optimistic_adam" = Chain {
        hyperparams:
            learning_rate [1.alpha] "Sets the learning rate.",
            optimism [1.beta] "Sets the weight of the latest change of direction.",
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
