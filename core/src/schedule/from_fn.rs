//! Values of a function.

use core::fmt;
use std::sync::Arc;

use super::Kind;
use super::declared::{Declared, Show};
use crate::error::Result;

/// Calls a function for the value.
///
/// # Arithmetic
///
/// ```text
/// function(count)
/// ```
///
/// The name stands for the function in messages and printouts. Two such schedules are equal if they are clones of one.
/// The function should be pure: a resumed run calls it for the same counts again.
///
/// # Errors
///
/// None: the function is opaque, and a NaN that it returns ends up in the parameters. If it panics in a step,
/// parameters keep their values, and the state [is poisoned](crate::Error::is_poisoned).
///
/// # Example
///
/// ```
/// use gradchain::schedule::{Schedule, from_fn};
/// let inverse_root = Schedule::from(from_fn("inverse_root", |count| 1.0 / ((count + 1) as f64).sqrt()));
/// assert_eq!([0, 3, 99].map(|count| inverse_root.at(count)), [1.0, 0.5, 0.1]);
/// assert_eq!(inverse_root.to_string(), "from_fn(\"inverse_root\", ..)");
/// ```
///
/// # References
///
/// Optax takes any callable for a schedule. PyTorch: `LambdaLR`, whose function gives a factor. Differs: the type marks
/// it as a schedule.
pub fn from_fn(name: impl Into<Arc<str>>, function: impl Fn(u64) -> f64 + Send + Sync + 'static) -> FromFn {
    FromFn { name: name.into(), function: Arc::new(function) }
}

/// See [`from_fn`].
#[derive(Clone)]
#[must_use = "a schedule does nothing until it is evaluated"]
pub struct FromFn {
    name: Arc<str>,
    function: Arc<dyn Fn(u64) -> f64 + Send + Sync>,
}

impl FromFn {
    /// Returns the name of the function.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Declared for FromFn {
    fn name(&self) -> &'static str {
        "from_fn"
    }

    fn check_ranges(&self, _: &str) -> Result<()> {
        Ok(())
    }

    fn arguments(&mut self, _: &mut Show<'_>) {}
}

impl Kind for FromFn {
    fn value(&self, count: u64) -> f64 {
        (self.function)(count)
    }
}

impl PartialEq for FromFn {
    fn eq(&self, other: &FromFn) -> bool {
        self.name == other.name && Arc::ptr_eq(&self.function, &other.function)
    }
}

impl fmt::Debug for FromFn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FromFn").field("name", &self.name).finish_non_exhaustive()
    }
}

impl fmt::Display for FromFn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "from_fn({:?}, ..)", self.name)
    }
}
