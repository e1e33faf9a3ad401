//! Decay that accelerates.

use super::declared::schedule;
use super::{Kind, fraction};

/// Decays slowly, then ever faster: the reflected exponential (REX), above a linear decay.
///
/// # Arithmetic
///
/// ```text
/// x = min(count / decay_steps, 1)
/// value = init_value·(1 − x) / (1/2 + (1 − x)/2)
/// ```
///
/// # Errors
///
/// [`validate`](super::Schedule::validate) refuses `decay_steps` 0 and a value that is not finite.
///
/// # Example
///
/// ```
/// use gradchain::schedule::rex;
/// let schedule = rex(3.0, 100);
/// assert_eq!([0, 50, 100, 999].map(|count| schedule.at(count)), [3.0, 2.0, 0.0, 0.0]);
/// ```
///
/// # References
///
/// Chen, Wolfe and Kyrillidis, [REX: revisiting budgeted training with an improved
/// schedule](https://arxiv.org/abs/2107.04197), 2021. Optax and PyTorch: none.
pub fn rex(init_value: f64, decay_steps: u64) -> Rex {
    Rex::with(init_value, decay_steps)
}

schedule! {
    /// See [`rex`].
    #[derive(Copy)]
    Rex as "rex" (
        /// The first value.
        init_value: f64 in FINITE,
        /// Number of steps of the decay.
        decay_steps: u64 in AT_LEAST_1,
    )
}

impl Kind for Rex {
    fn value(&self, count: u64) -> f64 {
        let left = 1.0 - fraction(count, self.decay_steps);
        self.init_value * (left / (0.5 + 0.5 * left))
    }
}
