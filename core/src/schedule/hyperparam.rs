//! A number or a schedule.

use core::fmt;

use super::Schedule;
use crate::error::{Error, Result};
use crate::range::Range;
use crate::recipe::FromRecipe;

/// A number or a schedule: the type of learning rates and other hyperparameters.
///
/// Functions take `impl IntoHyperparam`, so that both a plain `0.1` and `cosine_decay(0.1, 1000)` can be written. The
/// type of the argument distinguishes the two, not a test at run time. Numbers are `f64` whatever the dtype of the
/// parameters, since 0.999 is 1 in bf16.
///
/// # Example
///
/// ```
/// use gradchain::schedule::{Hyperparam, IntoHyperparam, linear};
///
/// fn learning_rate(value: impl IntoHyperparam) -> Hyperparam {
///     value.into()
/// }
/// assert_eq!(learning_rate(0.1).at(1000), 0.1);
/// assert_eq!(learning_rate(linear(1.0, 0.0, 10)).at(5), 0.5);
/// assert_eq!(learning_rate(linear(1.0, 0.0, 10)).to_string(), "linear(1.0, 0.0, 10)");
/// ```
///
/// # References
///
/// Optax: `ScalarOrSchedule`, distinguished by callability. Differs: a type, see above.
#[derive(Debug, PartialEq)]
#[non_exhaustive]
pub enum Hyperparam {
    /// The same value at every step.
    Number(f64),
    /// A value that changes with the step.
    Schedule(Schedule),
}

// Not derived, so that a transformation's `clone` does not inline it for each hyperparameter.
impl Clone for Hyperparam {
    #[inline(never)]
    fn clone(&self) -> Hyperparam {
        match self {
            Hyperparam::Number(number) => Hyperparam::Number(*number),
            Hyperparam::Schedule(schedule) => Hyperparam::Schedule(schedule.clone()),
        }
    }
}

impl Hyperparam {
    /// Returns the value at a step count; the first step has count 0.
    ///
    /// ```
    /// use gradchain::schedule::{Hyperparam, linear};
    /// assert_eq!(Hyperparam::from(linear(0.0, 4.0, 4)).at(3), 3.0);
    /// ```
    // Every rule calls it several times; inlining would duplicate the match on schedules.
    #[inline(never)]
    pub fn at(&self, count: u64) -> f64 {
        match self {
            Hyperparam::Number(number) => *number,
            Hyperparam::Schedule(schedule) => schedule.at(count),
        }
    }

    /// Returns the values of several at a step count.
    ///
    /// ```
    /// use gradchain::schedule::{Hyperparam, linear};
    /// let (rate, decay) = (Hyperparam::from(linear(0.0, 4.0, 4)), Hyperparam::from(0.9));
    /// assert_eq!(Hyperparam::all_at([&rate, &decay], 3), [3.0, 0.9]);
    /// ```
    #[inline(never)]
    pub fn all_at<const N: usize>(hyperparams: [&Hyperparam; N], count: u64) -> [f64; N] {
        let mut values = [0.0; N];
        for (value, hyperparam) in values.iter_mut().zip(hyperparams) {
            *value = hyperparam.at(count);
        }
        values
    }

    /// Returns whether it is a schedule.
    ///
    /// ```
    /// use gradchain::schedule::{Hyperparam, constant};
    /// assert!(!Hyperparam::from(0.1).is_scheduled());
    /// assert!(Hyperparam::from(constant(0.1)).is_scheduled(), "even if it never changes");
    /// ```
    pub fn is_scheduled(&self) -> bool {
        matches!(self, Hyperparam::Schedule(_))
    }

    /// Checks a number with `fits`, or a schedule with [`Schedule::validate`] and its first value.
    ///
    /// # Errors
    ///
    /// Fails if the number does not fit, or if the schedule has an argument out of range or is NaN in the first step
    /// although NaN does not fit.
    ///
    /// ```
    /// use gradchain::schedule::Hyperparam;
    /// let beta = Hyperparam::from(1.5);
    /// let error = beta.validate("adam", "b1", "in [0, 1)", |b| (0.0..1.0).contains(&b)).unwrap_err();
    /// assert_eq!(error.to_string(), "adam: argument `b1` must be in [0, 1), found 1.5");
    /// ```
    pub fn validate(
        &self,
        function: &str,
        argument: &str,
        expected: &str,
        fits: impl FnOnce(f64) -> bool,
    ) -> Result<()> {
        match self {
            Hyperparam::Schedule(schedule) => {
                schedule.validate()?;
                if schedule.at(0).is_nan() && !fits(f64::NAN) {
                    let expected = format!("{expected} in the first step");
                    return Err(Error::argument(function, argument, &expected, "a schedule that is NaN there"));
                }
                Ok(())
            }
            Hyperparam::Number(_) if FromRecipe::is_missing(self) => Err(Error::missing(function, argument)),
            Hyperparam::Number(number) if fits(*number) => Ok(()),
            Hyperparam::Number(number) => Err(Error::argument(function, argument, expected, number)),
        }
    }

    /// As [`validate`](Self::validate), with a named range.
    ///
    /// # Errors
    ///
    /// Fails if a number is not in the range, or a schedule is invalid.
    pub fn check_range(&self, function: &str, argument: &str, range: Range) -> Result<()> {
        self.validate(function, argument, range.text, range.contains)
    }
}

/// Conversion into a [`Hyperparam`]: implemented for `f64`, schedules, and hyperparameters.
///
/// Sealed, so that the compiler can name the expected types in its error message.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is neither a number nor a schedule",
    label = "an `f64` or a schedule is expected here",
    note = "numbers are `f64`, whatever the type of the parameters: write `1.0` for `1`, and `f64::from(x)` for an `f32`",
    note = "for a function of the step use `schedule::from_fn(\"its name\", |step| ...)`"
)]
pub trait IntoHyperparam: Into<Hyperparam> + private::Sealed {}

impl IntoHyperparam for f64 {}
impl IntoHyperparam for Schedule {}
impl IntoHyperparam for Hyperparam {}

pub(super) mod private {
    pub trait Sealed {}
    impl Sealed for f64 {}
    impl Sealed for super::Schedule {}
    impl Sealed for super::Hyperparam {}
}

impl From<f64> for Hyperparam {
    fn from(number: f64) -> Hyperparam {
        Hyperparam::Number(number)
    }
}

impl From<Schedule> for Hyperparam {
    fn from(schedule: Schedule) -> Hyperparam {
        Hyperparam::Schedule(schedule)
    }
}

impl fmt::Display for Hyperparam {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Hyperparam::Number(number) => write!(f, "{number:?}"),
            Hyperparam::Schedule(schedule) => schedule.fmt(f),
        }
    }
}
