//! Brackets an interval with a point that satisfies the strong Wolfe conditions, and narrows it down.

use super::super::scale_by_zoom_linesearch::Interpolation;
use super::{Line, Point, guess_or_one, positive_part};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Zoom {
    pub(crate) max_linesearch_steps: usize,
    pub(crate) max_learning_rate: Option<f64>,
    pub(crate) tol: f64,
    pub(crate) increase_factor: f64,
    pub(crate) slope_rtol: f64,
    pub(crate) curv_rtol: f64,
    pub(crate) approx_dec_rtol: Option<f64>,
    pub(crate) stepsize_precision: f64,
    pub(crate) interpolation: Interpolation,
}

/// The result; the line keeps its gradient.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LineSearchResult {
    pub(crate) t: f64,
    pub(crate) value: f64,
    pub(crate) evaluations: u64,
    pub(crate) decrease_error: f64,
    pub(crate) curvature_error: f64,
}

/// A point and its violations of the conditions.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    point: Point,
    decrease_error: f64,
    curvature_error: f64,
}

/// An interval with an acceptable point; `low`, with the lower value, may be on the right.
#[derive(Clone, Copy, Debug)]
struct Bracket {
    low: Point,
    high: Point,
    /// A third point for the cubic: a former end, or `low` if none.
    third: Point,
}

impl Zoom {
    /// Searches from `start`, whose `t` is 0.
    pub(crate) fn search(&self, line: &mut impl Line, start: Point, guess: f64) -> LineSearchResult {
        let failed = Candidate { point: start, decrease_error: f64::INFINITY, curvature_error: f64::INFINITY };
        if start.value.is_nan() || !start.slope.is_finite() {
            return failed.found(0);
        }
        let (mut kept, mut before, mut bracket) = (failed, start, None::<Bracket>);
        let mut t = guess_or_one(guess);
        for evaluations in 1.. {
            let at_most = self.max_learning_rate.unwrap_or(f64::INFINITY);
            let longest = bracket.is_none() && t >= at_most;
            let narrow = bracket.is_some_and(|b| b.length() <= self.stepsize_precision);
            t = match &bracket {
                Some(bracket) => bracket.interpolate(self.interpolation),
                None => t.min(at_most),
            };
            let now = self.check_wolfe(start, line.at(t));
            let enough = now.decrease_error <= self.tol;
            let done = enough && now.curvature_error <= self.tol;
            // Without a bracket each point is lower than the last.
            if enough && (bracket.is_none() || done || now.point.value < kept.point.value) {
                line.keep();
                kept = now;
            }
            bracket = match bracket {
                None => self.bracket(now, before, evaluations == 1),
                Some(bracket) => Some(bracket.narrowed(now)),
            };
            if done || (longest && bracket.is_none()) {
                // The longest step may be too short for the slope to change.
                return now.accepted(line, kept).found(evaluations);
            }
            if evaluations >= self.max_linesearch_steps as u64 || (narrow && kept.point.t > 0.0) {
                return now.or_fallback(line, kept).found(evaluations);
            }
            before = now.point;
            t *= self.increase_factor;
        }
        failed.found(0)
    }

    /// Evaluates the strong Wolfe conditions; the first also in the approximate form, robust to rounding.
    fn check_wolfe(&self, start: Point, point: Point) -> Candidate {
        if !point.is_finite() {
            let point = Point { value: f64::INFINITY, ..point };
            return Candidate { point, decrease_error: f64::INFINITY, curvature_error: f64::INFINITY };
        }
        let decrease = point.value - start.value - point.predicted_change(self.slope_rtol, start);
        let approximate = self.approx_dec_rtol.map_or(f64::INFINITY, |rtol| {
            let flat = point.slope - (2.0 * self.slope_rtol - 1.0) * start.slope;
            let near = point.value - start.value - rtol * start.value.abs();
            flat.max(near)
        });
        let curvature = match self.curv_rtol {
            f64::INFINITY => 0.0,
            // At a kink the slope jumps, and may be small nowhere.
            _ if point.on_bound.is_some() => 0.0,
            rtol => point.slope.abs() - rtol * start.slope.abs(),
        };
        Candidate {
            point,
            decrease_error: positive_part(decrease.min(approximate)),
            curvature_error: positive_part(curvature),
        }
    }

    /// Returns the interval between a new point and the previous one, unless the loss still decreases.
    fn bracket(&self, now: Candidate, before: Point, first: bool) -> Option<Bracket> {
        let rises = now.decrease_error > 0.0 || (!first && now.point.value >= before.value);
        match (rises, now.point.slope >= 0.0) {
            (true, _) => Some(Bracket { low: before, high: now.point, third: before }),
            (false, true) => Some(Bracket { low: now.point, high: before, third: now.point }),
            (false, false) => None,
        }
    }
}

impl Candidate {
    fn found(self, evaluations: u64) -> LineSearchResult {
        let Candidate { point: Point { t, value, .. }, decrease_error, curvature_error } = self;
        LineSearchResult { t, value, evaluations, decrease_error, curvature_error }
    }

    /// Accepts the last point and keeps its gradient.
    fn accepted(self, line: &mut impl Line, kept: Candidate) -> Candidate {
        if self.point.t != kept.point.t {
            line.keep();
        }
        self
    }

    /// Returns the best point with enough decrease, else the last if its loss is lower.
    fn or_fallback(self, line: &mut impl Line, kept: Candidate) -> Candidate {
        let lower = self.decrease_error.is_finite() && self.point.value < kept.point.value;
        if kept.point.t > 0.0 || !lower { kept } else { self.accepted(line, kept) }
    }
}

impl Bracket {
    fn length(&self) -> f64 {
        (self.high.t - self.low.t).abs()
    }

    /// Returns the minimum of a cubic or parabola, if not too close to an end, else the middle.
    fn interpolate(&self, interpolation: Interpolation) -> f64 {
        let Bracket { low, high, third } = *self;
        let (left, right, length) = (low.t.min(high.t), low.t.max(high.t), self.length());
        let clear_by = |margin: f64| move |t: &f64| *t > left + margin * length && *t < right - margin * length;
        let cubic = match interpolation {
            Interpolation::Values => cubic_minimum(low, high, third),
            Interpolation::Slopes => hermite_minimum(low, high),
        };
        let cubic = Some(cubic).filter(clear_by(0.2));
        let found = cubic.or_else(|| Some(parabola_minimum(low, high)).filter(clear_by(0.1)));
        found.unwrap_or(0.5 * (low.t + high.t))
    }

    /// Returns the subinterval after a point inside.
    fn narrowed(self, now: Candidate) -> Bracket {
        let Bracket { low, high, .. } = self;
        let point = now.point;
        if now.decrease_error > 0.0 || point.value >= low.value {
            Bracket { low, high: point, third: high }
        } else if point.slope * (high.t - low.t) >= 0.0 {
            Bracket { low: point, high: low, third: high }
        } else {
            Bracket { low: point, high, third: low }
        }
    }
}

/// Returns the minimum of the cubic with the slope of `a`, or NaN.
fn cubic_minimum(a: Point, b: Point, c: Point) -> f64 {
    // (f(a + x) − f(a) − f′(a)·x) / x² is linear in x: the cubic's second and third coefficients.
    let reduced = |p: Point| {
        let x = p.t - a.t;
        (p.value - a.value - a.slope * x) / (x * x)
    };
    let (at_b, at_c) = (reduced(b), reduced(c));
    let third = (at_b - at_c) / (b.t - c.t);
    let second = at_b - third * (b.t - a.t);
    a.t + (-second + (second * second - 3.0 * third * a.slope).sqrt()) / (3.0 * third)
}

/// Returns the minimum of the cubic with both slopes, or NaN.
fn hermite_minimum(a: Point, b: Point) -> f64 {
    let x = b.t - a.t;
    let first = a.slope + b.slope - 3.0 * (b.value - a.value) / x;
    let second = (first * first - a.slope * b.slope).sqrt().copysign(x);
    b.t - x * (b.slope + second - first) / (b.slope - a.slope + 2.0 * second)
}

/// Returns the minimum of the parabola with the slope of `a`.
fn parabola_minimum(a: Point, b: Point) -> f64 {
    let x = b.t - a.t;
    let second = (b.value - a.value - a.slope * x) / (x * x);
    a.t - a.slope / (2.0 * second)
}
