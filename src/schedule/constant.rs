//! The same value at every step.

use core::fmt;

use super::{Kind, finite};
use crate::error::Result;

/// Holds one value for ever.
///
/// # Arithmetic
///
/// ```text
/// value
/// ```
///
/// A plain number where a [`Hyperparam`](super::Hyperparam) is taken does the same; this one can be
/// [joined](super::join) to other schedules.
///
/// # Errors
///
/// [`validate`](super::Schedule::validate) refuses a value that is not finite.
///
/// # Example
///
/// ```
/// use gradchain::schedule::constant;
/// assert_eq!(constant(0.1).at(0), 0.1);
/// assert_eq!(constant(0.1).at(1_000_000), 0.1);
/// ```
///
/// # References
///
/// Optax: `constant_schedule`. PyTorch: no scheduler at all (its `ConstantLR` is a step up, see
/// [`piecewise_constant`](super::piecewise_constant)). Differs: none.
pub fn constant(value: f64) -> Constant {
    Constant { value }
}

/// See [`constant`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use = "a schedule does nothing until it is asked for a value"]
pub struct Constant {
    /// The value.
    pub value: f64,
}

impl Kind for Constant {
    fn value(&self, _: u64) -> f64 {
        self.value
    }

    fn check(&self) -> Result<()> {
        finite("constant", &[("value", self.value)])
    }
}

impl fmt::Display for Constant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "constant({:?})", self.value)
    }
}
