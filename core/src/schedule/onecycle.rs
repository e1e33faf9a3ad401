//! One-cycle schedules.

use super::declared::schedule;
use super::{InterpolateType, Kind, require};
use crate::error::Result;

/// One-cycle schedule in three linear phases: to the peak, back, and down to the final value.
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
/// [`validate`](super::Schedule::validate) refuses `transition_steps` 0, fractions outside
/// `0 ≤ pct_start ≤ pct_final ≤ 1`, factors that are not positive, and values that are not finite.
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
/// Optax: `linear_onecycle_schedule`. PyTorch: `OneCycleLR` with `anneal_strategy="linear"` and `three_phase`, whose
/// `total_steps` is `transition_steps + 1`, and whose second phase ends at `2·pct_start·total_steps − 2`. Differs:
/// fractions out of order and factors that are not positive are refused, which Optax takes.
///
/// [super]: https://arxiv.org/abs/1708.07120
pub fn linear_onecycle(transition_steps: u64, peak_value: f64) -> LinearOnecycle {
    LinearOnecycle::with(transition_steps, peak_value)
}

schedule! {
    /// See [`linear_onecycle`].
    #[derive(Copy)]
    LinearOnecycle as "linear_onecycle" (
        /// Total number of steps.
        transition_steps: u64 in AT_LEAST_1,
        /// The largest value.
        peak_value: f64 in FINITE,
    ) {
        /// The fraction of the steps before the peak.
        pct_start: f64 in UNIT_INTERVAL = 0.3;
        /// The fraction of the steps in both first phases.
        pct_final: f64 = 0.85;
        /// The peak divided by the first value.
        div_factor: f64 in POSITIVE = 25.0;
        /// The first value divided by the last.
        final_div_factor: f64 in POSITIVE = 1e4;
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

    fn check(&self, function: &str) -> Result<()> {
        let fits = (self.pct_start..=1.0).contains(&self.pct_final);
        require(fits, function, "pct_final", "in [`pct_start`, 1]", self.pct_final)
    }
}

/// One-cycle schedule in two phases, each along half a cosine: to the peak, and down to the final value.
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
/// Optax: `cosine_onecycle_schedule`. PyTorch: `OneCycleLR`, whose `total_steps` is `transition_steps + 1`, and whose
/// peak lies between two steps unless `pct_start·total_steps` is an integer. Differs: a fraction outside `[0, 1]` and
/// factors that are not positive are refused, which Optax takes.
///
/// [super]: https://arxiv.org/abs/1708.07120
pub fn cosine_onecycle(transition_steps: u64, peak_value: f64) -> CosineOnecycle {
    CosineOnecycle::with(transition_steps, peak_value)
}

schedule! {
    /// See [`cosine_onecycle`].
    #[derive(Copy)]
    CosineOnecycle as "cosine_onecycle" (
        /// Total number of steps.
        transition_steps: u64 in AT_LEAST_1,
        /// The largest value.
        peak_value: f64 in FINITE,
    ) {
        /// The fraction of the steps before the peak.
        pct_start: f64 in UNIT_INTERVAL = 0.3;
        /// The peak divided by the first value.
        div_factor: f64 in POSITIVE = 25.0;
        /// The first value divided by the last.
        final_div_factor: f64 in POSITIVE = 1e4;
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
}

fn share(of_steps: f64, steps: u64) -> u64 {
    (of_steps * steps as f64) as u64
}
