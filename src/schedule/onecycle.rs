//! Up, down and out, once.

use core::fmt;

use super::{InterpolateType, Kind, at_least_one, finite, option, require};
use crate::error::Result;

/// Goes up on a line, down on a line, and out on a third.
///
/// # Arithmetic
///
/// ```text
/// first = peak_value / div_factor
/// from 0 to ⌊pct_start·transition_steps⌋:   first to peak_value
/// to ⌊pct_final·transition_steps⌋:          back to first
/// to transition_steps, and there it stays:  first / final_div_factor
/// ```
///
/// # Errors
///
/// [`validate`](super::Schedule::validate) refuses `transition_steps` 0, shares outside `0 ≤ pct_start ≤ pct_final ≤ 1`,
/// factors that are not positive, and values that are not finite.
///
/// # Example
///
/// ```
/// use gradchain::schedule::linear_onecycle;
/// let cycle = linear_onecycle(100, 8.0).pct_start(0.25).pct_final(0.5).div_factor(4.0).final_div_factor(2.0);
/// assert_eq!([0, 25, 50, 75, 100, 999].map(|count| cycle.at(count)), [2.0, 8.0, 2.0, 1.5, 1.0, 1.0]);
/// ```
///
/// # References
///
/// Smith and Topin, [Super-convergence: very fast training of neural networks using large learning rates][super], 2017.
/// Optax: `linear_onecycle_schedule`. PyTorch: `OneCycleLR` with `anneal_strategy="linear"` and `three_phase`, which is
/// at its turning points one step earlier.
/// Differs: shares out of order and factors that are not positive are refused, which Optax takes.
///
/// [super]: https://arxiv.org/abs/1708.07120
pub fn linear_onecycle(transition_steps: u64, peak_value: f64) -> LinearOnecycle {
    LinearOnecycle {
        transition_steps,
        peak_value,
        pct_start: 0.3,
        pct_final: 0.85,
        div_factor: 25.0,
        final_div_factor: 1e4,
    }
}

/// See [`linear_onecycle`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use = "a schedule does nothing until it is asked for a value"]
pub struct LinearOnecycle {
    /// How many steps the whole takes, at least 1.
    pub transition_steps: u64,
    /// The largest value.
    pub peak_value: f64,
    /// The share of the steps that go up; 0.3 unless set.
    pub pct_start: f64,
    /// The share of the steps that go up and down; 0.85 unless set.
    pub pct_final: f64,
    /// The peak divided by the first value; 25 unless set.
    pub div_factor: f64,
    /// The first value divided by the last; 10000 unless set.
    pub final_div_factor: f64,
}

impl LinearOnecycle {
    /// Sets the share of the steps that go up. Default: 0.3.
    pub fn pct_start(mut self, pct_start: f64) -> LinearOnecycle {
        self.pct_start = pct_start;
        self
    }

    /// Sets the share of the steps that go up and down. Default: 0.85.
    pub fn pct_final(mut self, pct_final: f64) -> LinearOnecycle {
        self.pct_final = pct_final;
        self
    }

    /// Sets the peak divided by the first value. Default: 25.
    pub fn div_factor(mut self, div_factor: f64) -> LinearOnecycle {
        self.div_factor = div_factor;
        self
    }

    /// Sets the first value divided by the last. Default: 10000.
    pub fn final_div_factor(mut self, final_div_factor: f64) -> LinearOnecycle {
        self.final_div_factor = final_div_factor;
        self
    }
}

impl Kind for LinearOnecycle {
    fn value(&self, count: u64) -> f64 {
        let points = [
            (share(self.pct_start, self.transition_steps), self.div_factor),
            (share(self.pct_final, self.transition_steps), 1.0 / self.div_factor),
            (self.transition_steps, 1.0 / self.final_div_factor),
        ];
        InterpolateType::Linear.value(self.peak_value / self.div_factor, &points, count)
    }

    fn check(&self) -> Result<()> {
        const NAME: &str = "linear_onecycle";
        check(NAME, self.transition_steps, self.peak_value, self.div_factor, self.final_div_factor)?;
        require((0.0..=1.0).contains(&self.pct_start), NAME, "pct_start", "in [0, 1]", self.pct_start)?;
        let fits = (self.pct_start..=1.0).contains(&self.pct_final);
        require(fits, NAME, "pct_final", "in [`pct_start`, 1]", self.pct_final)
    }
}

impl fmt::Display for LinearOnecycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LinearOnecycle { transition_steps, peak_value, pct_start, pct_final, div_factor, final_div_factor } = self;
        write!(f, "linear_onecycle({transition_steps}, {peak_value:?})")?;
        option(f, "pct_start", pct_start, &0.3)?;
        option(f, "pct_final", pct_final, &0.85)?;
        option(f, "div_factor", div_factor, &25.0)?;
        option(f, "final_div_factor", final_div_factor, &1e4)
    }
}

/// Goes up and then out, each on half a cosine.
///
/// # Arithmetic
///
/// ```text
/// first = peak_value / div_factor
/// from 0 to ⌊pct_start·transition_steps⌋:   first to peak_value
/// to transition_steps, and there it stays:  first / final_div_factor
/// ```
///
/// # Errors
///
/// [`validate`](super::Schedule::validate) refuses `transition_steps` 0, `pct_start` outside `[0, 1]`, factors that are
/// not positive, and values that are not finite.
///
/// # Example
///
/// ```
/// use gradchain::schedule::cosine_onecycle;
/// let cycle = cosine_onecycle(100, 8.0).pct_start(0.5).div_factor(4.0).final_div_factor(2.0);
/// assert_eq!([0, 25, 50, 75, 100, 999].map(|count| cycle.at(count)), [2.0, 5.0, 8.0, 4.5, 1.0, 1.0]);
/// ```
///
/// # References
///
/// Smith and Topin, [Super-convergence: very fast training of neural networks using large learning rates][super], 2017.
/// Optax: `cosine_onecycle_schedule`. PyTorch: `OneCycleLR`, which is at its turning points one step earlier.
/// Differs: a share outside `[0, 1]` and factors that are not positive are refused, which Optax takes.
///
/// [super]: https://arxiv.org/abs/1708.07120
pub fn cosine_onecycle(transition_steps: u64, peak_value: f64) -> CosineOnecycle {
    CosineOnecycle { transition_steps, peak_value, pct_start: 0.3, div_factor: 25.0, final_div_factor: 1e4 }
}

/// See [`cosine_onecycle`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use = "a schedule does nothing until it is asked for a value"]
pub struct CosineOnecycle {
    /// How many steps the whole takes, at least 1.
    pub transition_steps: u64,
    /// The largest value.
    pub peak_value: f64,
    /// The share of the steps that go up; 0.3 unless set.
    pub pct_start: f64,
    /// The peak divided by the first value; 25 unless set.
    pub div_factor: f64,
    /// The first value divided by the last; 10000 unless set.
    pub final_div_factor: f64,
}

impl CosineOnecycle {
    /// Sets the share of the steps that go up. Default: 0.3.
    pub fn pct_start(mut self, pct_start: f64) -> CosineOnecycle {
        self.pct_start = pct_start;
        self
    }

    /// Sets the peak divided by the first value. Default: 25.
    pub fn div_factor(mut self, div_factor: f64) -> CosineOnecycle {
        self.div_factor = div_factor;
        self
    }

    /// Sets the first value divided by the last. Default: 10000.
    pub fn final_div_factor(mut self, final_div_factor: f64) -> CosineOnecycle {
        self.final_div_factor = final_div_factor;
        self
    }
}

impl Kind for CosineOnecycle {
    fn value(&self, count: u64) -> f64 {
        let points = [
            (share(self.pct_start, self.transition_steps), self.div_factor),
            (self.transition_steps, 1.0 / (self.div_factor * self.final_div_factor)),
        ];
        InterpolateType::Cosine.value(self.peak_value / self.div_factor, &points, count)
    }

    fn check(&self) -> Result<()> {
        const NAME: &str = "cosine_onecycle";
        check(NAME, self.transition_steps, self.peak_value, self.div_factor, self.final_div_factor)?;
        require((0.0..=1.0).contains(&self.pct_start), NAME, "pct_start", "in [0, 1]", self.pct_start)
    }
}

impl fmt::Display for CosineOnecycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cosine_onecycle({}, {:?})", self.transition_steps, self.peak_value)?;
        option(f, "pct_start", &self.pct_start, &0.3)?;
        option(f, "div_factor", &self.div_factor, &25.0)?;
        option(f, "final_div_factor", &self.final_div_factor, &1e4)
    }
}

fn share(of_steps: f64, steps: u64) -> u64 {
    (of_steps * steps as f64) as u64
}

fn check(function: &str, steps: u64, peak_value: f64, div_factor: f64, final_div_factor: f64) -> Result<()> {
    at_least_one(function, "transition_steps", steps)?;
    finite(function, &[("peak_value", peak_value)])?;
    [("div_factor", div_factor), ("final_div_factor", final_div_factor)].into_iter().try_for_each(|(name, factor)| {
        require(factor.is_finite() && factor > 0.0, function, name, "positive and finite", factor)
    })
}
