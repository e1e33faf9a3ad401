//! Decay along half a cosine.

use super::declared::schedule;
use super::{Kind, fraction};
use core::f64::consts::PI;

/// Decays along half a cosine, then stays constant.
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
/// [`validate`](super::Schedule::validate) refuses `decay_steps` 0, a negative `exponent`, and values that are not
/// finite.
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
/// Optax: `cosine_decay_schedule`. PyTorch: `CosineAnnealingLR`, whose `eta_min` is `alpha·init_value` and which rises
/// again after `T_max` steps. Differs: none from Optax, except for a negative `exponent`, with which Optax ends at
/// infinity.
///
/// [sgdr]: https://arxiv.org/abs/1608.03983
pub fn cosine_decay(init_value: f64, decay_steps: u64) -> CosineDecay {
    CosineDecay::with(init_value, decay_steps)
}

schedule! {
    /// See [`cosine_decay`].
    #[derive(Copy)]
    CosineDecay as "cosine_decay" (
        /// The first value.
        init_value: f64 in FINITE,
        /// Number of steps of the decay.
        decay_steps: u64 in AT_LEAST_1,
    ) {
        /// The last value as a fraction of the first.
        alpha: f64 in FINITE = 0.0;
        /// The exponent of the cosine.
        exponent: f64 in NOT_NEGATIVE = 1.0;
    }
}

impl Kind for CosineDecay {
    fn value(&self, count: u64) -> f64 {
        let cosine = 0.5 * (1.0 + (PI * fraction(count, self.decay_steps)).cos());
        self.init_value * ((1.0 - self.alpha) * cosine.powf(self.exponent) + self.alpha)
    }
}
