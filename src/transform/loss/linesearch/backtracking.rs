//! Backtracking: shorter steps until the decrease of the loss is sufficient (Armijo).

use super::{Line, Point, guess_or_one, positive_part};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Backtracking {
    pub(crate) max_backtracking_steps: usize,
    pub(crate) slope_rtol: f64,
    pub(crate) decrease_factor: f64,
    pub(crate) increase_factor: f64,
    pub(crate) max_learning_rate: f64,
    pub(crate) atol: f64,
    pub(crate) rtol: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LineSearchResult {
    pub(crate) t: f64,
    pub(crate) value: f64,
    pub(crate) evaluations: u64,
    pub(crate) decrease_error: f64,
}

impl Backtracking {
    /// Searches from `start`, at `t` 0; `before` is the last step size.
    pub(crate) fn search(&self, line: &mut impl Line, start: Point, before: f64) -> LineSearchResult {
        let mut found = LineSearchResult { t: 0.0, value: start.value, evaluations: 0, decrease_error: f64::INFINITY };
        if start.value.is_nan() || !start.slope.is_finite() {
            return found;
        }
        let mut t = (self.increase_factor * guess_or_one(before)).min(self.max_learning_rate);
        loop {
            let point = line.at(t);
            let value = point.value;
            found.evaluations += 1;
            found.decrease_error = self.decrease_error(start, point);
            let last = found.evaluations > self.max_backtracking_steps as u64;
            if found.decrease_error <= self.atol || last {
                return if value.is_finite() { LineSearchResult { t, value, ..found } } else { found };
            }
            t *= self.decrease_factor;
        }
    }

    fn decrease_error(&self, start: Point, point: Point) -> f64 {
        let value = point.value;
        if !value.is_finite() {
            return f64::INFINITY;
        }
        // `rtol` is a fraction of the loss's size; bitwise identical to Optax's formula for a positive loss.
        let tolerated = (1.0 + self.rtol.copysign(start.value)) * start.value;
        positive_part(value - tolerated - point.predicted_change(self.slope_rtol, start))
    }
}
