use crate::part::prelude::*;

/// Multiplies updates by minus the learning rate: the last stage of most optimizers.
///
/// # Arithmetic
///
/// ```text
/// u ← −learning_rate·u          with flip_sign false: learning_rate·u
/// ```
///
/// # Cost
///
/// No state for elements. Fuses; reads no parameters.
///
/// # Errors
///
/// `init` fails if the learning rate is not finite.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::schedule::linear;
///
/// let optimizer = scale_by_learning_rate(linear(1.0, 0.0, 2));
/// let mut params = 0.0_f64;
/// let mut state = optimizer.init(&params)?;
/// for expected in [-1.0, -1.5, -1.5] {
///     optimizer.step(&mut params, &1.0_f64, &mut state)?;
///     assert_eq!(params, expected);
/// }
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Optax, [`scale_by_learning_rate`](https://optax.readthedocs.io/en/latest/api/transformations.html). Differs: the
/// sign is not optional with the rate, as in Optax, whose chain ascends without a rate; the state does not depend on
/// whether a schedule is given.
pub fn scale_by_learning_rate(learning_rate: impl IntoHyperparam) -> ScaleByLearningRate {
    ScaleByLearningRate::with(learning_rate)
}

part! {
    /// See [`scale_by_learning_rate`].
    pub ScaleByLearningRate as "scale_by_learning_rate": OneElement;
    required {
        /// The learning rate.
        learning_rate: FINITE;
    }
    options {
        /// If true, descends; if false, ascends.
        flip_sign: bool = true;
    }
    effect Self::effect_of;
}

impl ScaleByLearningRate {
    fn effect_of(&self) -> Effect {
        if self.flip_sign { Effect::REVERSED } else { Effect::SAME_DIRECTION }.at_rate(&self.learning_rate)
    }
}

impl Rule for ScaleByLearningRate {
    type Slots<C: Real> = [C; 0];
    type Scalars<C: Real> = C;

    fn scalars<C: Real>(&self, clock: Clock) -> C {
        let rate = self.learning_rate.at(clock.count);
        C::of(if self.flip_sign { -rate } else { rate })
    }

    #[inline(always)]
    fn apply<C: Real>(factor: C, _: &mut [C; 0], u: C, _: C) -> C {
        factor * u
    }
}
