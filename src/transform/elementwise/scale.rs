use crate::part::prelude::*;

/// Multiplies updates by a number.
///
/// # Arithmetic
///
/// ```text
/// u ← step_size·u
/// ```
///
/// # Cost
///
/// No state. Fuses; reads no parameters.
///
/// # Errors
///
/// `init` fails if `step_size` is not finite.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::scale;
///
/// let mut params = 1.0_f64;
/// let optimizer = scale(-0.5);
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &1.0_f64, &mut state)?;
/// assert_eq!(params, 0.5);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Optax, [`scale`](https://optax.readthedocs.io/en/latest/api/transformations.html). Differs: also accepts a schedule,
/// as Optax's `scale_by_schedule`.
pub fn scale(step_size: impl IntoHyperparam) -> Scale {
    Scale::with(step_size)
}

part! {
    /// See [`scale`].
    pub Scale as "scale": OneElement;
    required {
        /// The factor.
        step_size: FINITE;
    }
    effect Self::effect_of;
}

impl Scale {
    fn effect_of(&self) -> Effect {
        Effect::times(&self.step_size)
    }
}

impl Rule for Scale {
    type Slots<C: Real> = [C; 0];
    type Scalars<C: Real> = C;

    fn scalars<C: Real>(&self, clock: Clock) -> C {
        C::of(self.step_size.at(clock.count))
    }

    #[inline(always)]
    fn apply<C: Real>(step_size: C, _: &mut [C; 0], u: C, _: C) -> C {
        step_size * u
    }
}
