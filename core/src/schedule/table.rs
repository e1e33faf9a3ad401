//! Values from a list.

use super::declared::schedule;
use super::{Kind, finite, require};
use crate::error::Result;

/// Returns the values of a list in sequence, then stays at the last.
///
/// # Arithmetic
///
/// ```text
/// value = values[min(count / every, n − 1)]          integer division
/// ```
///
/// # Errors
///
/// [`validate`](super::Schedule::validate) refuses an empty list, `every` 0, and values that are not finite.
///
/// # Example
///
/// One value for each epoch of 100 steps:
///
/// ```
/// use gradchain::schedule::table;
/// let schedule = table([1.0, 0.5, 0.25]).every(100);
/// assert_eq!([0, 99, 100, 299, 1000].map(|count| schedule.at(count)), [1.0, 1.0, 0.5, 0.25, 0.25]);
/// ```
///
/// # References
///
/// Optax and PyTorch: none; a function that looks values up.
pub fn table(values: impl IntoIterator<Item = f64>) -> Table {
    Table::with(values.into_iter().collect())
}

schedule! {
    /// See [`table`].
    Table as "table" (
        /// The values, at least one.
        values: Vec<f64>,
    ) {
        /// Number of steps per value.
        every: u64 in AT_LEAST_1 = 1;
    }
}

impl Kind for Table {
    fn value(&self, count: u64) -> f64 {
        let place = usize::try_from(count / self.every.max(1)).unwrap_or(usize::MAX);
        self.values.get(place).or(self.values.last()).copied().unwrap_or(f64::NAN)
    }

    fn check(&self, function: &str) -> Result<()> {
        require(!self.values.is_empty(), function, "values", "at least one", "none")?;
        self.values.iter().try_for_each(|value| finite(function, &[("values", *value)]))
    }
}
