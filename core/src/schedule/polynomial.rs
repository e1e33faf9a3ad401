//! Linear and polynomial transitions between two values.

use super::declared::schedule;
use super::{Kind, fraction};

/// Interpolates linearly from one value to another.
///
/// # Arithmetic
///
/// ```text
/// x = clamp((count − transition_begin) / transition_steps, 0, 1)
/// value = init_value + (end_value − init_value)·x
/// ```
///
/// With `transition_steps` 0 the value stays at `init_value`, as in Optax: the transition is omitted, not a jump.
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
    Linear::with(init_value, end_value, transition_steps)
}

schedule! {
    /// See [`linear`].
    #[derive(Copy)]
    Linear as "linear" (
        /// The value before the transition.
        init_value: f64 in FINITE,
        /// The value after it.
        end_value: f64 in FINITE,
        /// Number of steps of the transition; 0 omits it.
        transition_steps: u64,
    ) {
        /// The count at which it begins.
        transition_begin: u64 = 0;
    }
}

impl Kind for Linear {
    fn value(&self, count: u64) -> f64 {
        let Linear { init_value, end_value, transition_steps, transition_begin } = *self;
        Polynomial { init_value, end_value, power: 1.0, transition_steps, transition_begin }.value(count)
    }
}

/// Interpolates from one value to another by a power of the remaining fraction: polynomial decay.
///
/// # Arithmetic
///
/// ```text
/// x = clamp((count − transition_begin) / transition_steps, 0, 1)
/// value = end_value + (init_value − end_value)·(1 − x)^power
/// ```
///
/// With `transition_steps` 0 the value stays at `init_value`, as in Optax: the transition is omitted, not a jump.
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
    Polynomial::with(init_value, end_value, power, transition_steps)
}

schedule! {
    /// See [`polynomial`].
    #[derive(Copy)]
    Polynomial as "polynomial" (
        /// The value before the transition.
        init_value: f64 in FINITE,
        /// The value after it.
        end_value: f64 in FINITE,
        /// The exponent; 1 is a line.
        power: f64 in NOT_NEGATIVE,
        /// Number of steps of the transition; 0 omits it.
        transition_steps: u64,
    ) {
        /// The count at which it begins.
        transition_begin: u64 = 0;
    }
}

impl Kind for Polynomial {
    fn value(&self, count: u64) -> f64 {
        // Makes the first value exact: `(a − b) + b` need not be `a`.
        if count <= self.transition_begin || self.transition_steps == 0 {
            return self.init_value;
        }
        let left = 1.0 - fraction(count - self.transition_begin, self.transition_steps);
        (self.init_value - self.end_value) * left.powf(self.power) + self.end_value
    }
}
