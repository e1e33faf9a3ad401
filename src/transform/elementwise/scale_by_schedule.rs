use crate::part::prelude::*;
use crate::schedule::Schedule;

/// Multiplies updates by a schedule's value.
///
/// # Arithmetic
///
/// At step `t`, counted from 1:
///
/// ```text
/// u ← step_size_fn(t − 1)·u
/// ```
///
/// [`scale`](crate::transform::scale) takes a schedule too. This is Optax's name for it;
/// [`inject_hyperparams`](crate::inject_hyperparams) does not put this schedule into the state.
///
/// # Cost
///
/// No state for elements. Fuses; reads no parameters.
///
/// # Errors
///
/// `init` fails if the schedule has an argument out of range.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::schedule::linear;
/// use gradchain::transform::scale_by_schedule;
///
/// let optimizer = scale_by_schedule(linear(1.0, 0.0, 2));
/// let mut params = 0.0_f64;
/// let mut state = optimizer.init(&params)?;
/// for expected in [1.0, 1.5, 1.5] {
///     optimizer.step(&mut params, &1.0_f64, &mut state)?;
///     assert_eq!(params, expected);
/// }
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Optax, [`scale_by_schedule`](https://optax.readthedocs.io/en/latest/api/transformations.html). Differs: none.
pub fn scale_by_schedule(step_size_fn: impl Into<Schedule>) -> ScaleBySchedule {
    ScaleBySchedule::with(step_size_fn)
}

part! {
    /// See [`scale_by_schedule`].
    pub ScaleBySchedule as "scale_by_schedule": OneElement;
    given {
        /// The factor at each step count; the first step has count 0.
        step_size_fn: Schedule;
    }
    check Self::check_schedule;
    effect Self::effect_of;
}

impl ScaleBySchedule {
    fn effect_of(&self) -> Effect {
        Effect::times(&Hyperparam::Schedule(self.step_size_fn.clone()))
    }

    fn check_schedule(&self) -> Result<()> {
        self.step_size_fn.validate()
    }
}

impl Rule for ScaleBySchedule {
    type Slots<C: Real> = [C; 0];
    type Scalars<C: Real> = C;

    fn scalars<C: Real>(&self, clock: Clock) -> C {
        C::of(self.step_size_fn.at(clock.count))
    }

    #[inline(always)]
    fn apply<C: Real>(step_size: C, _: &mut [C; 0], u: C, _: C) -> C {
        step_size * u
    }
}
