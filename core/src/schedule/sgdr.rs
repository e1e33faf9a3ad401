//! Warm restarts.

use core::fmt;

use super::declared::{Declared, Show};
use super::{Kind, WarmupCosineDecay, require};
use crate::error::Result;
use crate::recipe::Required;

/// Cosine decay with warm restarts (SGDR): cycles of warm-up and cosine decay in sequence.
///
/// # Arithmetic
///
/// ```text
/// cycleᵢ at (count − what the cycles before it took)      each cycle takes its decay_steps; the last never ends
/// ```
///
/// # Errors
///
/// [`validate`](super::Schedule::validate) refuses an empty list, and any cycle that
/// [`warmup_cosine_decay`](super::warmup_cosine_decay) refuses.
///
/// # Example
///
/// ```
/// use gradchain::schedule::{sgdr, warmup_cosine_decay};
/// let restarts = sgdr([warmup_cosine_decay(0.0, 8.0, 10, 30), warmup_cosine_decay(0.0, 4.0, 10, 50).end_value(1.0)]);
/// assert_eq!([0, 10, 30, 40, 80, 999].map(|count| restarts.at(count)), [0.0, 8.0, 0.0, 4.0, 1.0, 1.0]);
/// ```
///
/// # References
///
/// Loshchilov and Hutter, [SGDR: stochastic gradient descent with warm restarts][sgdr], 2016, equation 5.
/// Optax: `sgdr_schedule`, which takes a list of dictionaries. PyTorch: `CosineAnnealingWarmRestarts`, without warm-up
/// and without end, each cycle `T_mult` times as long as the one before. Differs: none from Optax.
///
/// [sgdr]: https://arxiv.org/abs/1608.03983
pub fn sgdr(cycles: impl IntoIterator<Item = WarmupCosineDecay>) -> Sgdr {
    Sgdr { cycles: cycles.into_iter().collect() }
}

/// See [`sgdr`].
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a schedule does nothing until it is evaluated"]
#[non_exhaustive]
pub struct Sgdr {
    /// The cycles, at least one.
    pub cycles: Vec<WarmupCosineDecay>,
}

impl Declared for Sgdr {
    fn name(&self) -> &'static str {
        "sgdr"
    }

    fn check_ranges(&self, _: &str) -> Result<()> {
        Ok(())
    }

    fn arguments(&mut self, visit: &mut Show<'_>) {
        visit("cosine_kwargs", &mut Required(&mut self.cycles));
    }
}

impl Kind for Sgdr {
    fn value(&self, mut count: u64) -> f64 {
        let Some((last, before)) = self.cycles.split_last() else { return f64::NAN };
        for cycle in before {
            match count.checked_sub(cycle.decay_steps) {
                Some(left) => count = left,
                None => return cycle.value(count),
            }
        }
        last.value(count)
    }

    fn check(&self, function: &str) -> Result<()> {
        require(!self.cycles.is_empty(), function, "cycles", "at least one", "none")?;
        self.cycles.iter().enumerate().try_for_each(|(i, cycle)| cycle.check_all(&format!("{function}: cycle {i}")))
    }
}

impl fmt::Display for Sgdr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sgdr([")?;
        for (i, cycle) in self.cycles.iter().enumerate() {
            write!(f, "{}{cycle}", if i == 0 { "" } else { ", " })?;
        }
        f.write_str("])")
    }
}
