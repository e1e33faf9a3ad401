use crate::element::Real;
use crate::engine::{Clock, Rule};
use crate::error::Result;
use crate::macros::builder;
use crate::schedule::Hyperparam;

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
/// Optax, [`scale`](https://optax.readthedocs.io/en/latest/api/transformations.html). Differs: a schedule can be given
/// too, which makes it Optax's `scale_by_schedule`.
pub fn scale(step_size: impl Into<Hyperparam>) -> Scale {
    Scale { step_size: step_size.into() }
}

/// See [`scale`].
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a transformation does nothing until it is given gradients"]
pub struct Scale {
    /// The factor: any finite number.
    pub step_size: Hyperparam,
}

builder! {
    Scale as "scale" {
        hyperparams: step_size;
        options: ;
    }
}

impl Rule for Scale {
    const NAME: &'static str = "scale";
    crate::recipe::recipe_of_arguments!();
    type Slots<C: Real> = [C; 0];
    type Scalars<C: Real> = C;

    fn validate(&self) -> Result<()> {
        self.step_size.validate(Self::NAME, "step_size", "finite", f64::is_finite)
    }

    fn scalars<C: Real>(&self, clock: Clock) -> C {
        C::of(self.step_size.at(clock.count))
    }

    #[inline(always)]
    fn apply<C: Real>(step_size: C, _: &mut [C; 0], u: C, _: C) -> C {
        step_size * u
    }
}
