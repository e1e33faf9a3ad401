use crate::internal::engine::{OneElementWithMemory, RuleWithMemory};
use crate::part::prelude::*;

/// Replaces all updates by zero, even NaN: the parameters stay bitwise identical.
///
/// Inside a [`masked`](crate::masked) it freezes the chosen leaves, whatever precedes it.
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
/// use gradchain::transform::set_to_zero;
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
    SetToZero::with()
}

part! {
    /// See [`set_to_zero`].
    #[derive(Copy, Default, Eq)]
    pub SetToZero as "set_to_zero": OneElementWithMemory, ZERO;
}

// A rule without memory would count its steps.
impl RuleWithMemory for SetToZero {
    const ZERO: bool = true;
    type Memory = ();
    type Slots<C: Real> = [C; 0];
    type Scalars<C: Real> = ();

    fn start(&self, _: &InitContext<'_>) -> Result<()> {
        Ok(())
    }

    fn scalars<C: Real>(&self, (): &(), _: usize) {}

    #[inline(always)]
    fn apply<C: Real>((): (), _: &mut [C; 0], _: C, _: C, _: &mut [u32]) -> C {
        C::zero()
    }
}
