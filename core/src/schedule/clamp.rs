//! A schedule clamped between two values.

use super::declared::schedule;
use super::{Kind, Schedule, require};
use crate::error::Result;

/// Clamps a schedule between two values.
///
/// # Arithmetic
///
/// ```text
/// value = min(max(schedule at count, min_value), max_value)      a NaN stays
/// ```
///
/// # Errors
///
/// [`validate`](Schedule::validate) refuses a `min_value` above `max_value`, a NaN, and the errors of the schedule.
///
/// # Example
///
/// ```
/// use gradchain::schedule::{clamp, inverse_sqrt};
/// let schedule = clamp(inverse_sqrt(8.0, 4), 3.0, 6.0);
/// assert_eq!([0, 3, 15, 9999].map(|count| schedule.at(count)), [3.0, 6.0, 4.0, 3.0]);
/// ```
///
/// # References
///
/// Optax and PyTorch: none; a function around another.
pub fn clamp(schedule: impl Into<Schedule>, min_value: f64, max_value: f64) -> Clamp {
    Clamp::with(Box::new(schedule.into()), min_value, max_value)
}

schedule! {
    /// See [`clamp`].
    Clamp as "clamp" (
        /// The clamped schedule.
        schedule: Box<Schedule>,
        /// The least value; may be −∞.
        min_value: f64 in NUMBER,
        /// The largest value, at least `min_value`; may be ∞.
        max_value: f64,
    )
}

impl Kind for Clamp {
    fn value(&self, count: u64) -> f64 {
        // `f64::clamp` would panic if the two are in the wrong order, `max` alone would replace NaN.
        let value = self.schedule.at(count);
        if value.is_nan() { value } else { value.max(self.min_value).min(self.max_value) }
    }

    fn check(&self, function: &str) -> Result<()> {
        let expected = format!("at least `min_value` ({})", self.min_value);
        require(self.max_value >= self.min_value, function, "max_value", &expected, self.max_value)?;
        self.schedule.validate()
    }
}
