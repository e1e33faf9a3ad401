//! A line up, then something else.

use core::fmt;

use super::{CosineDecay, ExponentialDecay, Kind, exponential_decay, finite, linear, option, require};
use crate::error::Result;

/// Warms up on a line and stays there.
///
/// # Arithmetic
///
/// ```text
/// value = init_value + (peak_value − init_value)·min(count / warmup_steps, 1)
/// ```
///
/// With `warmup_steps` 0 the value stays at `init_value`, as in Optax: it is a [`linear`](super::linear) with other names.
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
    WarmupConstant { init_value, peak_value, warmup_steps }
}

/// See [`warmup_constant`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use = "a schedule does nothing until it is asked for a value"]
pub struct WarmupConstant {
    /// The first value.
    pub init_value: f64,
    /// The value from `warmup_steps` on.
    pub peak_value: f64,
    /// How many steps the way up takes; 0 leaves it out.
    pub warmup_steps: u64,
}

impl Kind for WarmupConstant {
    fn value(&self, count: u64) -> f64 {
        linear(self.init_value, self.peak_value, self.warmup_steps).value(count)
    }

    fn check(&self) -> Result<()> {
        finite("warmup_constant", &[("init_value", self.init_value), ("peak_value", self.peak_value)])
    }
}

impl fmt::Display for WarmupConstant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "warmup_constant({:?}, {:?}, {})", self.init_value, self.peak_value, self.warmup_steps)
    }
}

/// Warms up on a line, then goes down on half a cosine.
///
/// # Arithmetic
///
/// ```text
/// count < warmup_steps:   init_value + (peak_value − init_value)·count / warmup_steps
/// from there on:          end_value + (peak_value − end_value)·((1 + cos(π·x)) / 2)^exponent
///     x = min((count − warmup_steps) / (decay_steps − warmup_steps), 1)
/// ```
///
/// `decay_steps` counts the warm-up in: it is the length of the whole. With `peak_value` 0 the second half is 0,
/// whatever `end_value`, as in Optax.
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
/// let schedule = warmup_cosine_decay(0.0, 8.0, 10, 110, 2.0);
/// assert_eq!([0, 5, 10, 60, 110, 999].map(|count| schedule.at(count)), [0.0, 4.0, 8.0, 5.0, 2.0, 2.0]);
/// ```
///
/// # References
///
/// Loshchilov and Hutter, [SGDR: stochastic gradient descent with warm restarts][sgdr], 2016, equation 5.
/// Optax: `warmup_cosine_decay_schedule`. PyTorch: `SequentialLR` of `LinearLR` and `CosineAnnealingLR`.
/// Differs: `end_value` has no default (Optax: 0), and a negative `exponent` is refused.
///
/// [sgdr]: https://arxiv.org/abs/1608.03983
pub fn warmup_cosine_decay(
    init_value: f64,
    peak_value: f64,
    warmup_steps: u64,
    decay_steps: u64,
    end_value: f64,
) -> WarmupCosineDecay {
    WarmupCosineDecay { init_value, peak_value, warmup_steps, decay_steps, end_value, exponent: 1.0 }
}

/// See [`warmup_cosine_decay`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use = "a schedule does nothing until it is asked for a value"]
pub struct WarmupCosineDecay {
    /// The first value.
    pub init_value: f64,
    /// The value at `warmup_steps`.
    pub peak_value: f64,
    /// How many steps the way up takes; 0 starts at the peak.
    pub warmup_steps: u64,
    /// How many steps up and down take together, more than `warmup_steps`.
    pub decay_steps: u64,
    /// The value from `decay_steps` on.
    pub end_value: f64,
    /// The exponent of the cosine, at least 0; 1 unless set.
    pub exponent: f64,
}

impl WarmupCosineDecay {
    /// Sets the exponent of the cosine. Default: 1.
    pub fn exponent(mut self, exponent: f64) -> WarmupCosineDecay {
        self.exponent = exponent;
        self
    }

    /// As `check`, for a schedule that holds several.
    pub(super) fn check_as(&self, function: &str) -> Result<()> {
        let values = [("init_value", self.init_value), ("peak_value", self.peak_value), ("end_value", self.end_value)];
        finite(function, &values)?;
        finite(function, &[("exponent", self.exponent)])?;
        let expected = format!("more than `warmup_steps` ({}), which it includes", self.warmup_steps);
        require(self.decay_steps > self.warmup_steps, function, "decay_steps", &expected, self.decay_steps)?;
        require(self.exponent >= 0.0, function, "exponent", "at least 0", self.exponent)
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

    fn check(&self) -> Result<()> {
        self.check_as("warmup_cosine_decay")
    }
}

impl fmt::Display for WarmupCosineDecay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WarmupCosineDecay { init_value, peak_value, warmup_steps, decay_steps, end_value, exponent } = self;
        let values = format_args!("{init_value:?}, {peak_value:?}, {warmup_steps}, {decay_steps}, {end_value:?}");
        write!(f, "warmup_cosine_decay({values})")?;
        option(f, "exponent", exponent, &1.0)
    }
}

/// Warms up on a line, then multiplies by a rate every so many steps.
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
    WarmupExponentialDecay {
        init_value,
        warmup_steps,
        decay: exponential_decay(peak_value, transition_steps, decay_rate),
    }
}

/// See [`warmup_exponential_decay`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use = "a schedule does nothing until it is asked for a value"]
pub struct WarmupExponentialDecay {
    /// The first value.
    pub init_value: f64,
    /// How many steps the way up takes; 0 starts at the peak.
    pub warmup_steps: u64,
    /// What comes after; its `init_value` is the peak, its counts start where the warm-up ends.
    pub decay: ExponentialDecay,
}

impl WarmupExponentialDecay {
    /// Sets how many steps to stay at the peak. Default: 0.
    pub fn transition_begin(mut self, transition_begin: u64) -> WarmupExponentialDecay {
        self.decay.transition_begin = transition_begin;
        self
    }

    /// Sets whether the value falls only every `transition_steps`. Default: no.
    pub fn staircase(mut self, staircase: bool) -> WarmupExponentialDecay {
        self.decay.staircase = staircase;
        self
    }

    /// Sets where to stop. Default: nowhere.
    pub fn end_value(mut self, end_value: impl Into<Option<f64>>) -> WarmupExponentialDecay {
        self.decay.end_value = end_value.into();
        self
    }
}

impl Kind for WarmupExponentialDecay {
    fn value(&self, count: u64) -> f64 {
        match count.checked_sub(self.warmup_steps) {
            Some(since) => self.decay.value(since),
            None => linear(self.init_value, self.decay.init_value, self.warmup_steps).value(count),
        }
    }

    fn check(&self) -> Result<()> {
        finite("warmup_exponential_decay", &[("init_value", self.init_value)])?;
        self.decay.check_as("warmup_exponential_decay", "peak_value")
    }
}

impl fmt::Display for WarmupExponentialDecay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WarmupExponentialDecay { init_value, warmup_steps, decay } = self;
        let ExponentialDecay { init_value: peak_value, transition_steps, decay_rate, .. } = decay;
        let values = format_args!("{init_value:?}, {peak_value:?}, {warmup_steps}, {transition_steps}, {decay_rate:?}");
        write!(f, "warmup_exponential_decay({values})")?;
        decay.fmt_options(f)
    }
}
