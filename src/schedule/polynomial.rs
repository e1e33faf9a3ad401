//! From one value to another, on a line or a power of it.

use core::fmt;

use super::{Kind, finite, fraction, option, require};
use crate::error::Result;

/// Goes from one value to another on a straight line.
///
/// # Arithmetic
///
/// ```text
/// x = clamp((count − transition_begin) / transition_steps, 0, 1)
/// value = init_value + (end_value − init_value)·x
/// ```
///
/// With `transition_steps` 0 the value stays at `init_value`, as in Optax: the transition is left out, it is not a jump.
///
/// # Errors
///
/// [`validate`](super::Schedule::validate) refuses values that are not finite.
///
/// # Example
///
/// ```
/// use gradchain::schedule::linear;
/// let line = linear(1.0, 0.0, 4).transition_begin(10);
/// assert_eq!([0, 10, 11, 14, 99].map(|count| line.at(count)), [1.0, 1.0, 0.75, 0.0, 0.0]);
/// assert_eq!(linear(1.0, 0.0, 0).at(99), 1.0);
/// ```
///
/// # References
///
/// Optax: `linear_schedule`. PyTorch: `LinearLR` with `start_factor`, `end_factor` times the learning rate.
/// Differs: none in the numbers; a negative `transition_begin`, for which Optax takes 0, cannot be written.
pub fn linear(init_value: f64, end_value: f64, transition_steps: u64) -> Linear {
    Linear { init_value, end_value, transition_steps, transition_begin: 0 }
}

/// See [`linear`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use = "a schedule does nothing until it is asked for a value"]
pub struct Linear {
    /// The value before the transition.
    pub init_value: f64,
    /// The value after it.
    pub end_value: f64,
    /// How many steps it takes; 0 leaves it out.
    pub transition_steps: u64,
    /// The count at which it begins; 0 unless set.
    pub transition_begin: u64,
}

impl Linear {
    /// Sets the count at which the transition begins. Default: 0.
    pub fn transition_begin(mut self, transition_begin: u64) -> Linear {
        self.transition_begin = transition_begin;
        self
    }
}

impl Kind for Linear {
    fn value(&self, count: u64) -> f64 {
        let Linear { init_value, end_value, transition_steps, transition_begin } = *self;
        Polynomial { init_value, end_value, power: 1.0, transition_steps, transition_begin }.value(count)
    }

    fn check(&self) -> Result<()> {
        finite("linear", &[("init_value", self.init_value), ("end_value", self.end_value)])
    }
}

impl fmt::Display for Linear {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "linear({:?}, {:?}, {})", self.init_value, self.end_value, self.transition_steps)?;
        option(f, "transition_begin", &self.transition_begin, &0)
    }
}

/// Goes from one value to another on a power of a straight line.
///
/// # Arithmetic
///
/// ```text
/// x = clamp((count − transition_begin) / transition_steps, 0, 1)
/// value = end_value + (init_value − end_value)·(1 − x)^power
/// ```
///
/// With `transition_steps` 0 the value stays at `init_value`, as in Optax: the transition is left out, it is not a jump.
///
/// # Errors
///
/// [`validate`](super::Schedule::validate) refuses values that are not finite and a negative `power`.
///
/// # Example
///
/// ```
/// use gradchain::schedule::polynomial;
/// let square = polynomial(16.0, 0.0, 2.0, 4);
/// assert_eq!([0, 1, 2, 3, 4, 99].map(|count| square.at(count)), [16.0, 9.0, 4.0, 1.0, 0.0, 0.0]);
/// ```
///
/// # References
///
/// Optax: `polynomial_schedule`. PyTorch: `PolynomialLR`, which always ends at 0.
/// Differs: none in the numbers; a negative `power`, with which Optax ends at infinity, is refused.
pub fn polynomial(init_value: f64, end_value: f64, power: f64, transition_steps: u64) -> Polynomial {
    Polynomial { init_value, end_value, power, transition_steps, transition_begin: 0 }
}

/// See [`polynomial`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use = "a schedule does nothing until it is asked for a value"]
pub struct Polynomial {
    /// The value before the transition.
    pub init_value: f64,
    /// The value after it.
    pub end_value: f64,
    /// The exponent, at least 0; 1 is a line.
    pub power: f64,
    /// How many steps the transition takes; 0 leaves it out.
    pub transition_steps: u64,
    /// The count at which it begins; 0 unless set.
    pub transition_begin: u64,
}

impl Polynomial {
    /// Sets the count at which the transition begins. Default: 0.
    pub fn transition_begin(mut self, transition_begin: u64) -> Polynomial {
        self.transition_begin = transition_begin;
        self
    }
}

impl Kind for Polynomial {
    fn value(&self, count: u64) -> f64 {
        // Also what makes the first value exact: `(a − b) + b` need not be `a`.
        if count <= self.transition_begin || self.transition_steps == 0 {
            return self.init_value;
        }
        let left = 1.0 - fraction(count - self.transition_begin, self.transition_steps);
        (self.init_value - self.end_value) * left.powf(self.power) + self.end_value
    }

    fn check(&self) -> Result<()> {
        finite("polynomial", &[("init_value", self.init_value), ("end_value", self.end_value), ("power", self.power)])?;
        require(self.power >= 0.0, "polynomial", "power", "at least 0", self.power)
    }
}

impl fmt::Display for Polynomial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Polynomial { init_value, end_value, power, transition_steps, transition_begin } = self;
        write!(f, "polynomial({init_value:?}, {end_value:?}, {power:?}, {transition_steps})")?;
        option(f, "transition_begin", transition_begin, &0)
    }
}
