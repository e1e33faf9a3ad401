//! The same value at every step.

use super::Kind;
use super::declared::schedule;

/// Returns one value at every step.
///
/// # Arithmetic
///
/// ```text
/// value
/// ```
///
/// A plain number where a [`Hyperparam`](super::Hyperparam) is taken does the same; a constant schedule can also be
/// [joined](super::join) to others.
///
/// # Errors
///
/// [`validate`](super::Schedule::validate) refuses a value that is not finite.
///
/// # Example
///
/// ```
/// use gradchain::schedule::constant;
/// assert_eq!(constant(0.1).at(0), 0.1);
/// assert_eq!(constant(0.1).at(1_000_000), 0.1);
/// ```
///
/// # References
///
/// Optax: `constant_schedule`. PyTorch: no scheduler (its `ConstantLR` is a factor for the first steps, see
/// [`piecewise_constant`](super::piecewise_constant)). Differs: none.
pub fn constant(value: f64) -> Constant {
    Constant::with(value)
}

schedule! {
    /// See [`constant`].
    #[derive(Copy)]
    Constant as "constant" (
        /// The value.
        value: f64 in FINITE,
    )
}

impl Kind for Constant {
    fn value(&self, _: u64) -> f64 {
        self.value
    }
}
