use crate::part::prelude::*;
use crate::transform::{Ema, ScaleByLearningRate, ScaleBySign, ema, scale_by_learning_rate, scale_by_sign};

/// Signum: [`sign_sgd`](crate::optimizer::sign_sgd()) on the running mean of the gradients.
///
/// # Arithmetic
///
/// ```text
/// chain(ema(beta, debias: false),
///       scale_by_sign(),
///       scale_by_learning_rate(learning_rate))
/// ```
///
/// Default: `beta` 0.9. The start at zero needs no bias correction, since a factor does not change the sign.
///
/// # Cost
///
/// One float of state per parameter; one pass.
///
/// # Errors
///
/// `init` fails if an argument is out of the range that the parts give.
///
/// # Example
///
/// The second gradient is of the other sign, but the mean is `0.9·0.1·4 − 0.1·1`:
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::optimizer::signum;
///
/// let optimizer = signum(0.5);
/// let mut params = 0.0_f32;
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &4.0_f32, &mut state)?;
/// optimizer.step(&mut params, &-1.0_f32, &mut state)?;
/// assert_eq!(params, -1.0);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Bernstein, Wang, Azizzadenesheli and Anandkumar, [signSGD: compressed optimisation for non-convex
/// problems](https://arxiv.org/abs/1802.04434), 2018, algorithm 2. Optax,
/// [`signum`](https://optax.readthedocs.io/en/latest/api/optimizers.html). Differs: the mean of a 16-bit leaf is `f32`
/// unless `accumulator_dtype` is set.
pub fn signum(learning_rate: impl IntoHyperparam) -> Signum {
    Signum { chain: (ema(0.9).debias(false), scale_by_sign(), scale_by_learning_rate(learning_rate)) }
}

optimizer! {
    /// See [`signum`](signum()).
    #[derive(PartialEq)]
    Signum as "signum" = (Ema, ScaleBySign, ScaleByLearningRate) {
        hyperparams:
            learning_rate [2.learning_rate] "Sets the learning rate.",
            beta [0.decay] "Sets the decay of the running mean, in `[0, 1)`.";
        options:
            accumulator_dtype: Option<DType> [0.accumulator_dtype] "Sets the dtype of the running mean.";
    }
}
