//! The sum of schedules.

use super::declared::schedule;
use super::several::Several;
use super::{Kind, Schedule, require};
use crate::error::Result;

/// Adds schedules and numbers.
///
/// # Arithmetic
///
/// ```text
/// value = Σᵢ scheduleᵢ at count
/// ```
///
/// # Errors
///
/// [`validate`](Schedule::validate) refuses an empty list, and the errors of the schedules.
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
    Sum::with(schedules.into_schedules())
}

schedule! {
    /// See [`sum`].
    Sum as "sum" (
        /// The schedules, at least one.
        schedules: Vec<Schedule>,
    )
}

impl Kind for Sum {
    fn value(&self, count: u64) -> f64 {
        self.schedules.iter().map(|schedule| schedule.at(count)).sum()
    }

    fn check(&self, function: &str) -> Result<()> {
        require(!self.schedules.is_empty(), function, "schedules", "at least one", "none")?;
        self.schedules.iter().try_for_each(Schedule::validate)
    }
}
