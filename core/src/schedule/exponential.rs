//! Exponential decay.

use super::declared::schedule;
use super::{Kind, finite};
use crate::error::Result;

/// Multiplies by a rate every `transition_steps` steps, smoothly or in stairs.
///
/// # Arithmetic
///
/// ```text
/// x = max(count − transition_begin, 0) / transition_steps      rounded down if staircase
/// value = init_value·decay_rate^x
/// value = max(value, end_value) if decay_rate < 1, else min(value, end_value)      if there is an end_value
/// ```
///
/// With `transition_steps` 0 or `decay_rate` 0 the value stays at `init_value`, as in Optax.
///
/// # Errors
///
/// [`validate`](super::Schedule::validate) refuses values that are not finite and a negative `decay_rate`.
///
/// # Example
///
/// ```
/// use gradchain::schedule::exponential_decay;
/// let halving = exponential_decay(8.0, 2, 0.5).staircase(true).end_value(3.0);
/// assert_eq!([0, 1, 2, 3, 4].map(|count| halving.at(count)), [8.0, 8.0, 4.0, 4.0, 3.0]);
/// ```
///
/// # References
///
/// Optax: `exponential_decay`. PyTorch: `ExponentialLR` is `transition_steps` 1, `StepLR` is `staircase`.
/// Differs: none in the numbers; a negative `decay_rate`, with which Optax gives NaN between stairs, is refused.
pub fn exponential_decay(init_value: f64, transition_steps: u64, decay_rate: f64) -> ExponentialDecay {
    ExponentialDecay::with(init_value, transition_steps, decay_rate)
}

schedule! {
    /// See [`exponential_decay`].
    #[derive(Copy)]
    ExponentialDecay as "exponential_decay" (
        /// The first value.
        init_value: f64 in FINITE,
        /// Number of steps per multiplication by the rate; 0 disables the schedule.
        transition_steps: u64,
        /// The rate: the value falls for rates below 1 and grows above 1; 0 disables the schedule.
        decay_rate: f64 in NOT_NEGATIVE,
    ) {
        /// The count at which the decay begins.
        transition_begin: u64 = 0;
        /// If true, the value changes only every `transition_steps`.
        staircase: bool = false;
        /// The final value, if any: a lower bound for a rate below 1, else an upper bound.
        end_value: Option<f64> = None;
    }
}

impl Kind for ExponentialDecay {
    fn value(&self, count: u64) -> f64 {
        // Optax ignores `end_value` here.
        if self.transition_steps == 0 || self.decay_rate == 0.0 {
            return self.init_value;
        }
        let count = count.saturating_sub(self.transition_begin);
        let times = if self.staircase {
            (count / self.transition_steps) as f64
        } else {
            count as f64 / self.transition_steps as f64
        };
        // The power may be infinite, and zero times infinity is NaN.
        let value = if self.init_value == 0.0 { 0.0 } else { self.init_value * self.decay_rate.powf(times) };
        match self.end_value {
            Some(end) if self.decay_rate < 1.0 => value.max(end),
            Some(end) => value.min(end),
            None => value,
        }
    }

    fn check(&self, function: &str) -> Result<()> {
        finite(function, &[("end_value", self.end_value.unwrap_or(0.0))])
    }
}
