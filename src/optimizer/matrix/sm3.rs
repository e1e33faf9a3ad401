use crate::schedule::IntoHyperparam;
use crate::transform::{ScaleByLearningRate, ScaleBySm3, scale_by_learning_rate, scale_by_sm3};

/// SM3: memory-efficient Adagrad, with one accumulator per row and column of a matrix.
///
/// # Arithmetic
///
/// ```text
/// chain(scale_by_sm3(b1: momentum), scale_by_learning_rate(learning_rate))
/// ```
///
/// Default: `momentum` 0.9.
///
/// # Cost
///
/// One float of state per parameter, and one for each row and column. Two passes.
///
/// # Errors
///
/// `init` fails if an argument is out of the range that the parts give.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::optimizer::sm3;
///
/// let optimizer = sm3(0.5).momentum(0.0);
/// let mut params = vec![1.0_f32, 1.0];
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &vec![30.0_f32, -7.0], &mut state)?;
/// assert_eq!(params, [0.5, 1.5]);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Anil, Gupta, Koren and Singer, [Memory-efficient adaptive optimization](https://arxiv.org/abs/1901.11150), 2019,
/// SM3-II. Optax, [`sm3`](https://optax.readthedocs.io/en/latest/api/optimizers.html). Differs: the learning rate may
/// be a schedule; leaves may be single numbers.
pub fn sm3(learning_rate: impl IntoHyperparam) -> Sm3 {
    Sm3 { chain: (scale_by_sm3(), scale_by_learning_rate(learning_rate)) }
}

optimizer! {
    /// See [`sm3`](sm3()).
    #[derive(PartialEq)]
    Sm3 as "sm3" = (ScaleBySm3, ScaleByLearningRate) {
        hyperparams:
            learning_rate [1.learning_rate] "Sets the learning rate.",
            momentum [0.b1] "Sets the decay of the mean of scaled gradients, in `[0, 1)`.";
    }
}
