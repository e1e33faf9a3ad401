use crate::part::prelude::*;
use crate::transform::{ScaleByAdopt, ScaleByLearningRate, StepLimit, scale_by_adopt, scale_by_learning_rate};

/// ADOPT: [`adam`](crate::adam()) that divides by the previous second moment, and converges with any `b2`.
///
/// # Arithmetic
///
/// ```text
/// chain(scale_by_adopt(b1, b2, eps, nesterov, use_clipping, clip_value_fn), scale_by_learning_rate(learning_rate))
/// ```
///
/// Defaults: `b1` 0.9, `b2` 0.9999, `eps` 1e-6, no nesterov, limited to the fourth root of the step.
///
/// # Cost
///
/// Two floats of state per parameter; one pass.
///
/// # Errors
///
/// `init` fails if an argument is out of the range that [`scale_by_adopt`](crate::transform::scale_by_adopt) gives.
///
/// # Example
///
/// The first step only initializes the second moment:
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::optimizer::adopt;
///
/// let optimizer = adopt(2.0).b1(0.5).b2(0.5);
/// let mut params = 0.0_f64;
/// let mut state = optimizer.init(&params)?;
/// for (gradient, expected) in [(4.0, 0.0), (2.0, -0.5)] {
///     optimizer.step(&mut params, &gradient, &mut state)?;
///     assert_eq!(params, expected);
/// }
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Taniguchi and others, [ADOPT: modified Adam can converge with any β₂ with the optimal
/// rate](https://arxiv.org/abs/2411.02853), 2024, algorithm 2. Optax,
/// [`adopt`](https://optax.readthedocs.io/en/latest/api/contrib.html). Differs: as
/// [`scale_by_adopt`](crate::transform::scale_by_adopt). PyTorch has none.
pub fn adopt(learning_rate: impl IntoHyperparam) -> Adopt {
    Adopt { chain: (scale_by_adopt(), scale_by_learning_rate(learning_rate)) }
}

optimizer! {
    /// See [`adopt`](adopt()).
    #[derive(PartialEq)]
    Adopt as "adopt" = (ScaleByAdopt, ScaleByLearningRate) {
        hyperparams:
            learning_rate [1.learning_rate] "Sets the learning rate.",
            b1 [0.b1] "Sets the decay of the mean, in `[0, 1)`.",
            b2 [0.b2] "Sets the decay of the second moment, in `[0, 1)`.",
            eps [0.eps] "Sets the lower bound of the divisor.";
        options:
            mu_dtype: Option<DType> [0.mu_dtype] "Sets the dtype of the mean.",
            nesterov: bool [0.nesterov] "Sets whether the mean is Nesterov momentum.",
            use_clipping: bool [0.use_clipping] "Sets whether the input of the mean is clipped.",
            clip_value_fn: StepLimit [0.clip_value_fn] "Sets the clipping limit at each step, counted from 0.";
    }
}
