use crate::element::Real;
use crate::engine::{InitContext, Place, Shape, Span, Stage, StepContext, Tile};
use crate::error::Result;
use crate::macros::builder;

/// Replaces all updates by zero, NaNs too: the parameters stay as they are, to the last bit.
///
/// Inside a [`masked`](crate::masked) it freezes the chosen leaves, whatever comes before it.
///
/// # Arithmetic
///
/// ```text
/// u ← 0
/// ```
///
/// # Cost
///
/// None. At the end of a chain, parameters are not even read.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
///
/// let optimizer = chain((sgd(1.0), masked(set_to_zero(), Mask::path("0"))));
/// let mut params = (1.0_f64, 1.0_f64);
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &(f64::NAN, 0.25), &mut state)?;
/// assert_eq!(params, (1.0, 0.75));
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Optax, [`set_to_zero`](https://optax.readthedocs.io/en/latest/api/transformations.html). Differs: none.
pub fn set_to_zero() -> SetToZero {
    SetToZero
}

/// See [`set_to_zero`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "a transformation does nothing until it is given gradients"]
pub struct SetToZero;

builder! {
    SetToZero as "set_to_zero" {
        hyperparams: ;
        options: ;
    }
}

/// Not a rule, so that it can tell the engine that there is nothing to add.
impl Stage for SetToZero {
    type Needs = crate::needs::Nothing;
    type State = ();
    type Run = ();
    type Kernel<C: Real> = ();

    const SHAPE: Shape = Shape::elementwise(false, false);
    const FUSES: bool = true;

    fn init_state(&self, _: &InitContext<'_>) -> Result<()> {
        Ok(())
    }

    fn begin(&self, (): &mut (), _: &StepContext<'_>) {}

    fn ends_at(&self, (): &(), (): &()) -> Option<usize> {
        Some(0)
    }

    fn tile<C: Real>(&self, (): &(), (): &(), place: Place, span: Span, tile: &mut Tile<'_, C>) {
        if span.has(place.at) {
            tile.set_zero();
        }
    }

    fn kernel<C: Real>(&self, (): &(), (): &(), _: usize) {}

    #[inline(always)]
    fn apply<C: Real>((): &(), at: usize, span: Span, _: &mut [C], u: C, _: C, _: &mut [u32]) -> C {
        if span.has(at) { C::zero() } else { u }
    }

    fn state_bytes(&self, (): &(), _: usize, _: usize, _: Span) -> usize {
        0
    }

    fn recipe(&self) -> crate::recipe::Recipe {
        crate::recipe::of_arguments(self)
    }

    fn describe(&self) -> String {
        "set_to_zero".into()
    }
}
