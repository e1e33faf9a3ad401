use crate::schedule::IntoHyperparam;
use crate::transform::{ScaleByLearningRate, ScaleByRss, scale_by_learning_rate, scale_by_rss};

/// Adagrad: the gradient divided by the root of the sum of its squares so far.
///
/// # Arithmetic
///
/// ```text
/// chain(scale_by_rss(initial_accumulator_value, eps, eps_in_sqrt), scale_by_learning_rate(learning_rate))
/// ```
///
/// Defaults: `initial_accumulator_value` 0.1, `eps` 1e-7 under the root.
///
/// # Cost
///
/// One float of state per parameter; one pass.
///
/// # Errors
///
/// `init` fails if an argument is out of the range that [`scale_by_rss`] gives.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
///
/// let optimizer = adagrad(1.0).initial_accumulator_value(0.0).eps(0.0);
/// let mut params = 0.0_f64;
/// let mut state = optimizer.init(&params)?;
/// for (gradient, expected) in [(3.0, -1.0), (-4.0, -0.2)] {
///     optimizer.step(&mut params, &gradient, &mut state)?;
///     approx::assert_relative_eq!(params, expected, max_relative = 1e-12);
/// }
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Duchi, Hazan and Singer, [Adaptive subgradient methods for online learning and stochastic
/// optimization](https://jmlr.org/papers/v12/duchi11a.html), 2011. Optax,
/// [`adagrad`](https://optax.readthedocs.io/en/latest/api/optimizers.html). Differs: as [`scale_by_rss`]. PyTorch's
/// `Adagrad` starts from 0 and has `eps` 1e-10 outside the root, see there; its `lr_decay` is a schedule here.
pub fn adagrad(learning_rate: impl IntoHyperparam) -> Adagrad {
    Adagrad { chain: (scale_by_rss(), scale_by_learning_rate(learning_rate)) }
}

optimizer! {
    /// See [`adagrad`](adagrad()).
    #[derive(PartialEq)]
    Adagrad as "adagrad" = (ScaleByRss, ScaleByLearningRate) {
        hyperparams:
            learning_rate [1.learning_rate] "Sets the learning rate.",
            initial_accumulator_value [0.initial_accumulator_value] "Sets the initial sum of squares.",
            eps [0.eps] "Sets the epsilon added under the root or to it.";
        options:
            eps_in_sqrt: bool [0.eps_in_sqrt] "Sets whether `eps` is under the root.";
    }
}
