//! Warm-up, plateau and decay.

use super::declared::schedule;
use super::{Kind, fraction, linear};
use core::f64::consts::PI;

/// Warms up linearly, stays constant, and decays at the end: WSD, the trapezoidal schedule.
///
/// The length of the plateau need not be known in advance: save a run before its end and decay from there.
///
/// # Arithmetic
///
/// With `w`, `s`, `d` the numbers of steps:
///
/// ```text
/// count < w:          init_value + (peak_value − init_value)·count / w
/// count < w + s:      peak_value
/// from there on:      end_value + (peak_value − end_value)·f(x)       x = min((count − w − s) / d, 1)
///
/// f(x) = 1 − x        Linear
///        1 − √x       OneMinusSqrt
///        (1 + cos(π·x)) / 2     Cosine
/// ```
///
/// # Errors
///
/// [`validate`](super::Schedule::validate) refuses values that are not finite. Each of the three parts may be empty.
///
/// # Example
///
/// ```
/// use gradchain::schedule::{DecayShape, warmup_stable_decay};
///
/// let schedule = warmup_stable_decay(8.0, 4, 10, 4);
/// assert_eq!([0, 2, 4, 13, 14, 16, 18, 99].map(|count| schedule.at(count)), [0.0, 4.0, 8.0, 8.0, 8.0, 4.0, 0.0, 0.0]);
/// let steep = schedule.shape(DecayShape::OneMinusSqrt).end_value(2.0);
/// assert_eq!([15, 18].map(|count| steep.at(count)), [5.0, 2.0]);
/// ```
///
/// # References
///
/// Hu et al., [MiniCPM: unveiling the potential of small language models](https://arxiv.org/abs/2404.06395), 2024,
/// section 4; Hägele et al., [Scaling laws and compute-optimal training beyond fixed training
/// durations](https://arxiv.org/abs/2405.18392), 2024, for the shape `1 − √x`. Optax and PyTorch: none by this name.
pub fn warmup_stable_decay(
    peak_value: f64,
    warmup_steps: u64,
    stable_steps: u64,
    decay_steps: u64,
) -> WarmupStableDecay {
    WarmupStableDecay::with(peak_value, warmup_steps, stable_steps, decay_steps)
}

/// The shape of the decay of [`warmup_stable_decay`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DecayShape {
    /// Linear.
    #[default]
    Linear,
    /// Steep first, then ever flatter.
    OneMinusSqrt,
    /// On half a cosine.
    Cosine,
}

impl DecayShape {
    fn left(self, x: f64) -> f64 {
        match self {
            DecayShape::Linear => 1.0 - x,
            DecayShape::OneMinusSqrt => 1.0 - x.sqrt(),
            DecayShape::Cosine => 0.5 * (1.0 + (PI * x).cos()),
        }
    }
}

schedule! {
    /// See [`warmup_stable_decay`].
    #[derive(Copy)]
    WarmupStableDecay as "warmup_stable_decay" (
        /// The value of the plateau.
        peak_value: f64 in FINITE,
        /// Number of steps of the warm-up; 0 starts at the peak.
        warmup_steps: u64,
        /// Number of steps of the plateau.
        stable_steps: u64,
        /// Number of steps of the decay; 0 drops at once.
        decay_steps: u64,
    ) {
        /// The first value.
        init_value: f64 in FINITE = 0.0;
        /// The last value.
        end_value: f64 in FINITE = 0.0;
        /// The shape of the decay.
        shape: DecayShape = DecayShape::Linear;
    }
}

impl Kind for WarmupStableDecay {
    fn value(&self, count: u64) -> f64 {
        let WarmupStableDecay { peak_value, warmup_steps, stable_steps, decay_steps, init_value, end_value, shape } =
            *self;
        if count < warmup_steps {
            return linear(init_value, peak_value, warmup_steps).value(count);
        }
        let Some(since) = (count - warmup_steps).checked_sub(stable_steps) else { return peak_value };
        let left = if since < decay_steps { shape.left(fraction(since, decay_steps)) } else { 0.0 };
        end_value + (peak_value - end_value) * left
    }
}
