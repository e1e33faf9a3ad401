//! Repeated cosine decay.

use super::Kind;
use super::declared::schedule;
use core::f64::consts::PI;

/// Repeats a cosine decay indefinitely: warm restarts.
///
/// # Arithmetic
///
/// Cycle `i`, from 0, takes `cycle_steps·steps_factorⁱ` steps. With `x` the fraction of it that is done:
///
/// ```text
/// value = init_value·value_factorⁱ·((1 − alpha)·(1 + cos(π·x)) / 2 + alpha)
/// ```
///
/// # Errors
///
/// [`validate`](super::Schedule::validate) refuses `cycle_steps` or `steps_factor` 0, a `value_factor` that is not
/// above 0 and at most 1, and values that are not finite.
///
/// # Example
///
/// ```
/// use gradchain::schedule::cosine_restarts;
/// let schedule = cosine_restarts(8.0, 10).steps_factor(2).value_factor(0.5);
/// assert_eq!([0, 5, 10, 20, 30, 50].map(|count| schedule.at(count)), [8.0, 4.0, 4.0, 2.0, 2.0, 1.0]);
/// ```
///
/// # References
///
/// Loshchilov and Hutter, [SGDR: stochastic gradient descent with warm restarts](https://arxiv.org/abs/1608.03983),
/// 2016, equation 5. PyTorch: `CosineAnnealingWarmRestarts`, with `T_mult` for `steps_factor` and `eta_min` for
/// `alpha·init_value`; TensorFlow: `CosineDecayRestarts`. Optax: [`sgdr`](super::sgdr), which lists every cycle and has
/// warm-ups.
pub fn cosine_restarts(init_value: f64, cycle_steps: u64) -> CosineRestarts {
    CosineRestarts::with(init_value, cycle_steps)
}

schedule! {
    /// See [`cosine_restarts`].
    #[derive(Copy)]
    CosineRestarts as "cosine_restarts" (
        /// The first value.
        init_value: f64 in FINITE,
        /// Number of steps of the first cycle.
        cycle_steps: u64 in AT_LEAST_1,
    ) {
        /// Length of each cycle as a multiple of the one before.
        steps_factor: u64 in AT_LEAST_1 = 1;
        /// First value of each cycle as a multiple of that of the one before.
        value_factor: f64 in POSITIVE_FRACTION = 1.0;
        /// The last value of a cycle as a fraction of its first.
        alpha: f64 in FINITE = 0.0;
    }
}

impl CosineRestarts {
    /// Returns a count's cycle, the steps done in it, and its length.
    fn cycle(&self, count: u64) -> (u64, u64, u64) {
        let mut steps = self.cycle_steps.max(1);
        if self.steps_factor <= 1 {
            return (count / steps, count % steps, steps);
        }
        let (mut cycle, mut done) = (0, count);
        while done >= steps {
            done -= steps;
            steps = steps.saturating_mul(self.steps_factor);
            cycle += 1;
        }
        (cycle, done, steps)
    }
}

impl Kind for CosineRestarts {
    fn value(&self, count: u64) -> f64 {
        let (cycle, done, steps) = self.cycle(count);
        let cosine = 0.5 * (1.0 + (PI * (done as f64 / steps as f64)).cos());
        let height = self.init_value * self.value_factor.powf(cycle as f64);
        height * ((1.0 - self.alpha) * cosine + self.alpha)
    }
}
