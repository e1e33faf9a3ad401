//! A linear warm-up, followed by another schedule.

use super::declared::schedule;
use super::{CosineDecay, Kind, exponential_decay, finite, linear, require};
use crate::error::Result;

/// Warms up linearly, then stays constant.
///
/// # Arithmetic
///
/// ```text
/// value = init_value + (peak_value − init_value)·min(count / warmup_steps, 1)
/// ```
///
/// With `warmup_steps` 0 the value stays at `init_value`, as in Optax: it is a [`linear`](super::linear) under other
/// names.
///
/// # Errors
///
/// [`validate`](super::Schedule::validate) refuses values that are not finite.
///
/// # Example
///
/// ```
/// use gradchain::schedule::warmup_constant;
/// let warmup = warmup_constant(0.0, 1.0, 4);
/// assert_eq!([0, 1, 4, 99].map(|count| warmup.at(count)), [0.0, 0.25, 1.0, 1.0]);
/// ```
///
/// # References
///
/// Optax: `warmup_constant_schedule`. PyTorch: `LinearLR`. Differs: none.
pub fn warmup_constant(init_value: f64, peak_value: f64, warmup_steps: u64) -> WarmupConstant {
    WarmupConstant::with(init_value, peak_value, warmup_steps)
}

schedule! {
    /// See [`warmup_constant`].
    #[derive(Copy)]
    WarmupConstant as "warmup_constant" (
        /// The first value.
        init_value: f64 in FINITE,
        /// The value from `warmup_steps` on.
        peak_value: f64 in FINITE,
        /// Number of steps of the warm-up; 0 stays at `init_value`.
        warmup_steps: u64,
    )
}

impl Kind for WarmupConstant {
    fn value(&self, count: u64) -> f64 {
        linear(self.init_value, self.peak_value, self.warmup_steps).value(count)
    }
}

/// Warms up linearly, then decays along half a cosine.
///
/// # Arithmetic
///
/// ```text
/// count < warmup_steps:   init_value + (peak_value − init_value)·count / warmup_steps
/// from there on:          end_value + (peak_value − end_value)·((1 + cos(π·x)) / 2)^exponent
///     x = min((count − warmup_steps) / (decay_steps − warmup_steps), 1)
/// ```
///
/// `decay_steps` includes the warm-up: it is the total length. With `peak_value` 0 the second half is 0, whatever
/// `end_value`, as in Optax.
///
/// # Errors
///
/// [`validate`](super::Schedule::validate) refuses `decay_steps` that are not more than `warmup_steps`, a negative
/// `exponent`, and values that are not finite.
///
/// # Example
///
/// ```
/// use gradchain::schedule::warmup_cosine_decay;
/// let schedule = warmup_cosine_decay(0.0, 8.0, 10, 110).end_value(2.0);
/// assert_eq!([0, 5, 10, 60, 110, 999].map(|count| schedule.at(count)), [0.0, 4.0, 8.0, 5.0, 2.0, 2.0]);
/// ```
///
/// # References
///
/// Loshchilov and Hutter, [SGDR: stochastic gradient descent with warm restarts][sgdr], 2016, equation 5.
/// Optax: `warmup_cosine_decay_schedule`. PyTorch: `SequentialLR` of `LinearLR` and `CosineAnnealingLR`.
/// Differs: a negative `exponent` is refused.
///
/// [sgdr]: https://arxiv.org/abs/1608.03983
pub fn warmup_cosine_decay(init_value: f64, peak_value: f64, warmup_steps: u64, decay_steps: u64) -> WarmupCosineDecay {
    WarmupCosineDecay::with(init_value, peak_value, warmup_steps, decay_steps)
}

schedule! {
    /// See [`warmup_cosine_decay`].
    #[derive(Copy)]
    WarmupCosineDecay as "warmup_cosine_decay" (
        /// The first value.
        init_value: f64 in FINITE,
        /// The value at `warmup_steps`.
        peak_value: f64 in FINITE,
        /// Number of steps of the warm-up; 0 starts at the peak.
        warmup_steps: u64,
        /// Number of steps of warm-up and decay together, more than `warmup_steps`.
        decay_steps: u64,
    ) {
        /// The value from `decay_steps` on.
        end_value: f64 in FINITE = 0.0;
        /// The exponent of the cosine.
        exponent: f64 in NOT_NEGATIVE = 1.0;
    }
}

impl Kind for WarmupCosineDecay {
    fn value(&self, count: u64) -> f64 {
        let WarmupCosineDecay { init_value, peak_value, warmup_steps, decay_steps, end_value, exponent } = *self;
        if count < warmup_steps {
            return linear(init_value, peak_value, warmup_steps).value(count);
        }
        let alpha = if peak_value == 0.0 { 0.0 } else { end_value / peak_value };
        let decay_steps = decay_steps.saturating_sub(warmup_steps);
        CosineDecay { init_value: peak_value, decay_steps, alpha, exponent }.value(count - warmup_steps)
    }

    fn check(&self, function: &str) -> Result<()> {
        let expected = format!("more than `warmup_steps` ({}), which it includes", self.warmup_steps);
        require(self.decay_steps > self.warmup_steps, function, "decay_steps", &expected, self.decay_steps)
    }
}

/// Warms up linearly, then multiplies by a rate every `transition_steps` steps.
///
/// # Arithmetic
///
/// ```text
/// count < warmup_steps:   init_value + (peak_value − init_value)·count / warmup_steps
/// from there on:          exponential_decay(peak_value, transition_steps, decay_rate) at count − warmup_steps
/// ```
///
/// See [`exponential_decay`] for the second half and its options.
///
/// # Errors
///
/// [`validate`](super::Schedule::validate) refuses values that are not finite and a negative `decay_rate`.
///
/// # Example
///
/// ```
/// use gradchain::schedule::warmup_exponential_decay;
/// let schedule = warmup_exponential_decay(0.0, 8.0, 4, 2, 0.5).end_value(1.0);
/// assert_eq!([0, 2, 4, 6, 8, 99].map(|count| schedule.at(count)), [0.0, 4.0, 8.0, 4.0, 2.0, 1.0]);
/// ```
///
/// # References
///
/// Optax: `warmup_exponential_decay_schedule`. PyTorch: `SequentialLR` of `LinearLR` and `ExponentialLR`.
/// Differs: as [`exponential_decay`].
pub fn warmup_exponential_decay(
    init_value: f64,
    peak_value: f64,
    warmup_steps: u64,
    transition_steps: u64,
    decay_rate: f64,
) -> WarmupExponentialDecay {
    WarmupExponentialDecay::with(init_value, peak_value, warmup_steps, transition_steps, decay_rate)
}

schedule! {
    /// See [`warmup_exponential_decay`].
    #[derive(Copy)]
    WarmupExponentialDecay as "warmup_exponential_decay" (
        /// The first value.
        init_value: f64 in FINITE,
        /// The value at `warmup_steps`.
        peak_value: f64 in FINITE,
        /// Number of steps of the warm-up; 0 starts at the peak.
        warmup_steps: u64,
        /// Number of steps per multiplication by the rate; 0 disables the decay.
        transition_steps: u64,
        /// The rate: the value falls for rates below 1 and grows above 1; 0 stays at the peak.
        decay_rate: f64 in NOT_NEGATIVE,
    ) {
        /// Number of steps at the peak.
        transition_begin: u64 = 0;
        /// If true, the value changes only every `transition_steps`.
        staircase: bool = false;
        /// The final value, if any: a lower bound for a rate below 1, else an upper bound.
        end_value: Option<f64> = None;
    }
}

impl Kind for WarmupExponentialDecay {
    fn value(&self, count: u64) -> f64 {
        let WarmupExponentialDecay { peak_value, transition_steps, decay_rate, .. } = *self;
        let WarmupExponentialDecay { transition_begin, staircase, end_value, .. } = *self;
        let Some(since) = count.checked_sub(self.warmup_steps) else {
            return linear(self.init_value, peak_value, self.warmup_steps).value(count);
        };
        let decay = exponential_decay(peak_value, transition_steps, decay_rate);
        decay.transition_begin(transition_begin).staircase(staircase).end_value(end_value).value(since)
    }

    fn check(&self, function: &str) -> Result<()> {
        finite(function, &[("end_value", self.end_value.unwrap_or(0.0))])
    }
}
