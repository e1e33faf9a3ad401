//! Down half a cosine.

use core::f64::consts::PI;
use core::fmt;

use super::{Kind, at_least_one, finite, fraction, option, require};
use crate::error::Result;

/// Goes down on half a cosine, and stays there.
///
/// # Arithmetic
///
/// ```text
/// x = min(count / decay_steps, 1)
/// value = init_value·((1 − alpha)·((1 + cos(π·x)) / 2)^exponent + alpha)
/// ```
///
/// # Errors
///
/// [`validate`](super::Schedule::validate) refuses `decay_steps` 0, a negative `exponent`, and values that are not finite.
///
/// # Example
///
/// ```
/// use gradchain::schedule::cosine_decay;
/// let cosine = cosine_decay(8.0, 100).alpha(0.25);
/// assert_eq!([0, 50, 100, 1000].map(|count| cosine.at(count)), [8.0, 5.0, 2.0, 2.0]);
/// ```
///
/// # References
///
/// Loshchilov and Hutter, [SGDR: stochastic gradient descent with warm restarts][sgdr], 2016, equation 5, one cycle.
/// Optax: `cosine_decay_schedule`. PyTorch: `CosineAnnealingLR`, where `eta_min` is `alpha·init_value` and which goes up
/// again after `T_max` steps. Differs: none from Optax, but for a negative `exponent`, with which Optax ends at infinity.
///
/// [sgdr]: https://arxiv.org/abs/1608.03983
pub fn cosine_decay(init_value: f64, decay_steps: u64) -> CosineDecay {
    CosineDecay { init_value, decay_steps, alpha: 0.0, exponent: 1.0 }
}

/// See [`cosine_decay`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use = "a schedule does nothing until it is asked for a value"]
pub struct CosineDecay {
    /// The first value.
    pub init_value: f64,
    /// How many steps the way down takes, at least 1.
    pub decay_steps: u64,
    /// The last value as a share of the first; 0 unless set.
    pub alpha: f64,
    /// The exponent of the cosine, at least 0; 1 unless set.
    pub exponent: f64,
}

impl CosineDecay {
    /// Sets the last value as a share of the first. Default: 0.
    pub fn alpha(mut self, alpha: f64) -> CosineDecay {
        self.alpha = alpha;
        self
    }

    /// Sets the exponent of the cosine. Default: 1.
    pub fn exponent(mut self, exponent: f64) -> CosineDecay {
        self.exponent = exponent;
        self
    }
}

impl Kind for CosineDecay {
    fn value(&self, count: u64) -> f64 {
        let cosine = 0.5 * (1.0 + (PI * fraction(count, self.decay_steps)).cos());
        self.init_value * ((1.0 - self.alpha) * cosine.powf(self.exponent) + self.alpha)
    }

    fn check(&self) -> Result<()> {
        let values = [("init_value", self.init_value), ("alpha", self.alpha), ("exponent", self.exponent)];
        finite("cosine_decay", &values)?;
        at_least_one("cosine_decay", "decay_steps", self.decay_steps)?;
        require(self.exponent >= 0.0, "cosine_decay", "exponent", "at least 0", self.exponent)
    }
}

impl fmt::Display for CosineDecay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cosine_decay({:?}, {})", self.init_value, self.decay_steps)?;
        option(f, "alpha", &self.alpha, &0.0)?;
        option(f, "exponent", &self.exponent, &1.0)
    }
}
