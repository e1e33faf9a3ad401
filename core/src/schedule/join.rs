//! Schedules in sequence.

use super::declared::schedule;
use super::several::Several;
use super::{Kind, Schedule, require};
use crate::error::Result;

/// Runs schedules in sequence, each from its own count 0.
///
/// # Arithmetic
///
/// ```text
/// count < boundary₁:                schedule₀ at count
/// boundaryᵢ ≤ count < boundaryᵢ₊₁:  scheduleᵢ at (count − boundaryᵢ)
/// ```
///
/// # Errors
///
/// [`validate`](Schedule::validate) refuses boundaries that are not one fewer than the schedules or that descend, and
/// the errors of the schedules.
///
/// # Example
///
/// ```
/// use gradchain::schedule::{constant, join, linear};
/// let schedule = join((linear(0.0, 1.0, 4), constant(0.5)), [8]);
/// assert_eq!([0, 2, 7, 8, 99].map(|count| schedule.at(count)), [0.0, 0.5, 1.0, 0.5, 0.5]);
/// ```
///
/// # References
///
/// Optax: `join_schedules`. PyTorch: `SequentialLR`. Differs: with too few or too many boundaries Optax silently
/// ignores the rest; here those, and boundaries that descend, are refused.
pub fn join(schedules: impl Several, boundaries: impl IntoIterator<Item = u64>) -> Join {
    Join::with(schedules.into_schedules(), boundaries.into_iter().collect())
}

schedule! {
    /// See [`join`].
    Join as "join" (
        /// The schedules, at least one.
        schedules: Vec<Schedule>,
        /// The start of each schedule but the first, ascending.
        boundaries: Vec<u64>,
    )
}

impl Kind for Join {
    fn value(&self, count: u64) -> f64 {
        let passed = self.boundaries.iter().take_while(|boundary| **boundary <= count).count();
        let begin = if passed == 0 { 0 } else { self.boundaries[passed - 1] };
        self.schedules.get(passed).map_or(f64::NAN, |schedule| schedule.at(count - begin))
    }

    fn check(&self, function: &str) -> Result<()> {
        let (schedules, boundaries) = (self.schedules.len(), self.boundaries.len());
        require(schedules > 0, function, "schedules", "at least one", "none")?;
        let expected = format!("{}, one fewer than the schedules", schedules - 1);
        require(boundaries == schedules - 1, function, "boundaries", &expected, boundaries)?;
        let ascending = self.boundaries.is_sorted();
        require(ascending, function, "boundaries", "ascending", format!("{:?}", self.boundaries))?;
        self.schedules.iter().try_for_each(Schedule::validate)
    }
}
