use crate::schedule::IntoHyperparam;
use crate::transform::*;

/// Optimistic gradient descent: steps against the gradient and its latest change, for games and saddle points.
///
/// # Arithmetic
///
/// ```text
/// chain(scale_by_optimistic_gradient(alpha, beta), scale_by_learning_rate(learning_rate))
/// ```
///
/// Defaults: `alpha` and `beta` 1.
///
/// # Cost
///
/// One float of state per parameter; one pass.
///
/// # Errors
///
/// `init` fails if an argument is out of the range that
/// [`scale_by_optimistic_gradient`](crate::transform::scale_by_optimistic_gradient) gives.
///
/// # Example
///
/// The second step is `0.5·(2·3 − 4)`:
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::optimizer::optimistic_gradient_descent;
///
/// let optimizer = optimistic_gradient_descent(0.5);
/// let mut params = 0.0_f64;
/// let mut state = optimizer.init(&params)?;
/// for (gradient, expected) in [(4.0, -2.0), (3.0, -3.0)] {
///     optimizer.step(&mut params, &gradient, &mut state)?;
///     assert_eq!(params, expected);
/// }
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Mokhtari, Ozdaglar and Pattathil, [A unified analysis of extra-gradient and optimistic gradient methods for saddle
/// point problems](https://arxiv.org/abs/1901.08511), 2019. Optax,
/// [`optimistic_gradient_descent`](https://optax.readthedocs.io/en/latest/api/optimizers.html). Differs: `alpha` and
/// `beta` may be schedules. PyTorch has none.
pub fn optimistic_gradient_descent(learning_rate: impl IntoHyperparam) -> OptimisticGradientDescent {
    OptimisticGradientDescent { chain: (scale_by_optimistic_gradient(), scale_by_learning_rate(learning_rate)) }
}

optimizer! {
    /// See [`optimistic_gradient_descent`](optimistic_gradient_descent()).
    #[derive(PartialEq)]
    OptimisticGradientDescent as "optimistic_gradient_descent" = (ScaleByOptimisticGradient, ScaleByLearningRate) {
        hyperparams:
            learning_rate [1.learning_rate] "Sets the learning rate.",
            alpha [0.alpha] "Sets the weight of the gradient.",
            beta [0.beta] "Sets the weight of its change.";
    }
}
