//! Values from a list.

use core::fmt;

use super::{Kind, at_least_one, finite, option, require};
use crate::error::Result;

/// Takes one value after the other from a list, then stays at the last.
///
/// # Arithmetic
///
/// ```text
/// value = values[min(count / every, n − 1)]          a whole quotient
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
    Table { values: values.into_iter().collect(), every: 1 }
}

/// See [`table`].
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a schedule does nothing until it is asked for a value"]
pub struct Table {
    /// The values, at least one.
    pub values: Vec<f64>,
    /// How many steps each of them lasts, at least 1; 1 unless set.
    pub every: u64,
}

impl Table {
    /// Sets how many steps each value lasts. Default: 1.
    pub fn every(mut self, every: u64) -> Table {
        self.every = every;
        self
    }
}

impl Kind for Table {
    fn value(&self, count: u64) -> f64 {
        let place = usize::try_from(count / self.every.max(1)).unwrap_or(usize::MAX);
        self.values.get(place).or(self.values.last()).copied().unwrap_or(f64::NAN)
    }

    fn check(&self) -> Result<()> {
        require(!self.values.is_empty(), "table", "values", "at least one", "none")?;
        at_least_one("table", "every", self.every)?;
        self.values.iter().try_for_each(|value| finite("table", &[("values", *value)]))
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "table({:?})", self.values)?;
        option(f, "every", &self.every, &1)
    }
}
