//! Schedules added up.

use core::fmt;

use super::several::{Several, list};
use super::{Kind, Schedule, require};
use crate::error::Result;

/// Adds schedules and numbers up.
///
/// # Arithmetic
///
/// ```text
/// value = Σᵢ scheduleᵢ at count
/// ```
///
/// # Errors
///
/// [`validate`](Schedule::validate) refuses an empty list, and whatever one of the schedules refuses.
///
/// # Example
///
/// ```
/// use gradchain::schedule::{constant, linear, sum};
/// let schedule = sum((linear(1.0, 0.0, 4), constant(0.5), 2.0));
/// assert_eq!([0, 2, 9].map(|count| schedule.at(count)), [3.5, 3.0, 2.5]);
/// ```
///
/// # References
///
/// Optax and PyTorch: none; a function of others.
pub fn sum(schedules: impl Several) -> Sum {
    Sum { schedules: schedules.into_schedules() }
}

/// See [`sum`].
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a schedule does nothing until it is asked for a value"]
pub struct Sum {
    /// The schedules, at least one.
    pub schedules: Vec<Schedule>,
}

impl Kind for Sum {
    fn value(&self, count: u64) -> f64 {
        self.schedules.iter().map(|schedule| schedule.at(count)).sum()
    }

    fn check(&self) -> Result<()> {
        require(!self.schedules.is_empty(), "sum", "schedules", "at least one", "none")?;
        self.schedules.iter().try_for_each(Schedule::validate)
    }
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sum(")?;
        list(f, &self.schedules)?;
        f.write_str(")")
    }
}
