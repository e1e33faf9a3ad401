//! Slowly, then ever faster, down.

use core::fmt;

use super::{Kind, at_least_one, finite, fraction};
use crate::error::Result;

/// Goes down ever faster, between a line and staying: "reflected exponential".
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
    Rex { init_value, decay_steps }
}

/// See [`rex`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use = "a schedule does nothing until it is asked for a value"]
pub struct Rex {
    /// The first value.
    pub init_value: f64,
    /// How many steps the way down takes, at least 1.
    pub decay_steps: u64,
}

impl Kind for Rex {
    fn value(&self, count: u64) -> f64 {
        let left = 1.0 - fraction(count, self.decay_steps);
        self.init_value * (left / (0.5 + 0.5 * left))
    }

    fn check(&self) -> Result<()> {
        at_least_one("rex", "decay_steps", self.decay_steps)?;
        finite("rex", &[("init_value", self.init_value)])
    }
}

impl fmt::Display for Rex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rex({:?}, {})", self.init_value, self.decay_steps)
    }
}
