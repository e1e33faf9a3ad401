//! The product of schedules.

use super::declared::schedule;
use super::several::Several;
use super::{Kind, Schedule, require};
use crate::error::Result;

/// Multiplies schedules and numbers: scales one, or warms it up.
///
/// # Arithmetic
///
/// ```text
/// value = Πᵢ scheduleᵢ at count
/// ```
///
/// # Errors
///
/// [`validate`](Schedule::validate) refuses an empty list, and the errors of the schedules.
///
/// # Example
///
/// ```
/// use gradchain::schedule::{linear, product};
/// let warmup = linear(0.0, 1.0, 4);
/// let schedule = product((0.5, warmup, linear(1.0, 0.0, 8)));
/// assert_eq!([0, 2, 4, 8].map(|count| schedule.at(count)), [0.0, 0.1875, 0.25, 0.0]);
/// ```
///
/// # References
///
/// PyTorch: `ChainedScheduler`, whose members scale in turn. Optax: none; a function of others.
pub fn product(schedules: impl Several) -> Product {
    Product::with(schedules.into_schedules())
}

schedule! {
    /// See [`product`].
    Product as "product" (
        /// The schedules, at least one.
        schedules: Vec<Schedule>,
    )
}

impl Kind for Product {
    fn value(&self, count: u64) -> f64 {
        self.schedules.iter().map(|schedule| schedule.at(count)).product()
    }

    fn check(&self, function: &str) -> Result<()> {
        require(!self.schedules.is_empty(), function, "schedules", "at least one", "none")?;
        self.schedules.iter().try_for_each(Schedule::validate)
    }
}
