//! Line searches: the algorithms, on scalars, and the line through a tree.

mod backtracking;
mod zoom;

pub(super) use backtracking::Backtracking;
pub(super) use zoom::Zoom;

use std::sync::Arc;

use crate::internal::engine::Bounds;
use crate::internal::numeric::{add_rounded, clamp, convert, dot, is_blocked, with_dtype};
use crate::part::{LeafVisitor, WholeLeaf, WholeTree};
use crate::state::Moments;
use crate::{Element, Real};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    /// In multiples of the direction.
    pub(super) t: f64,
    pub(super) value: f64,
    pub(super) slope: f64,
    /// If bounds bend the line before this point: the change of the loss that the initial gradient predicts.
    pub(super) on_bound: Option<f64>,
}

impl Point {
    pub(super) fn start(value: f64, slope: f64) -> Point {
        Point { t: 0.0, value, slope, on_bound: None }
    }

    /// Returns `factor` times the change of the loss that the initial slope predicts.
    fn predicted_change(self, factor: f64, start: Point) -> f64 {
        self.on_bound.map_or(factor * self.t * start.slope, |change| factor * change)
    }

    /// Returns true if value and slope are finite. A loss of −∞ is an overflow, not a success.
    fn is_finite(self) -> bool {
        self.value.is_finite() && self.slope.is_finite()
    }
}

/// The loss along a direction.
pub(super) trait Line {
    /// Evaluates the loss, and its slope if the search needs it.
    fn at(&mut self, t: f64) -> Point;

    /// Keeps the last evaluation's gradient in place of the kept one: the search may end there.
    fn keep(&mut self) {}
}

/// The line from the parameters along the updates; it bends at bounds and follows them.
pub(super) struct TreeLine<'a, 't> {
    tree: &'a mut WholeTree<'t>,
    point: &'a mut Moments,
    /// Of the last evaluation and the kept one, if the search needs slopes.
    gradients: Option<[&'a mut Moments; 2]>,
    bounded: Option<LineBounds>,
}

struct LineBounds {
    bounds: Arc<Bounds>,
    gradient: Moments,
}

impl<'a, 't> TreeLine<'a, 't> {
    pub(super) fn new(
        tree: &'a mut WholeTree<'t>,
        point: &'a mut Moments,
        gradients: Option<[&'a mut Moments; 2]>,
    ) -> Self {
        let bounded = tree.bounds().map(|bounds| {
            let mut gradient = point.clone();
            read_gradient(tree, &mut gradient);
            LineBounds { bounds, gradient }
        });
        TreeLine { tree, point, gradients, bounded }
    }

    /// Returns the slope at the start, and keeps the step's gradient.
    pub(super) fn first_slope(&mut self) -> f64 {
        let gradient = match &mut self.gradients {
            Some([_, kept]) => &mut **kept,
            None => &mut *self.point,
        };
        read_gradient(self.tree, gradient);
        match &self.bounded {
            None => slope(self.tree, gradient),
            Some(LineBounds { bounds, gradient }) => {
                let mut along = ProjectedSlope::new(bounds, None, gradient);
                self.tree.visit(&mut along);
                along.slope
            }
        }
    }

    pub(super) fn finish(self, t: f64) {
        let bounds = self.bounded.as_ref().map(|bounded| &*bounded.bounds);
        self.tree.visit(&mut ScaleUpdates { t, bounds });
    }
}

impl Line for TreeLine<'_, '_> {
    fn at(&mut self, t: f64) -> Point {
        let bounds = self.bounded.as_ref().map(|bounded| &*bounded.bounds);
        self.tree.visit(&mut WriteTrialPoint { t, point: self.point, bounds });
        let (value, gradient) = match &mut self.gradients {
            None => (self.tree.value_at(self.point), None),
            Some([gradient, _]) => (self.tree.value_and_grad_at(self.point, gradient), Some(&**gradient)),
        };
        let Some(LineBounds { bounds, gradient: start }) = &self.bounded else {
            return Point { t, value, slope: gradient.map_or(f64::NAN, |g| slope(self.tree, g)), on_bound: None };
        };
        let mut along = ProjectedSlope::new(bounds, Some(self.point), gradient.unwrap_or(start));
        self.tree.visit(&mut along);
        let mut change = PredictedChange { point: self.point, gradient: start, sum: 0.0 };
        self.tree.visit(&mut change);
        let slope = if gradient.is_some() { along.slope } else { f64::NAN };
        Point { t, value, slope, on_bound: along.on_bound.then_some(change.sum) }
    }

    fn keep(&mut self) {
        if let Some([last, kept]) = &mut self.gradients {
            core::mem::swap(*last, *kept);
        }
    }
}

fn read_gradient(tree: &WholeTree<'_>, to: &mut Moments) {
    for leaf in 0..to.len() {
        if let Some(to) = to.get_mut::<f64>(leaf) {
            tree.gradient(leaf, to);
        } else if let Some(to) = to.get_mut::<f32>(leaf) {
            tree.gradient(leaf, to);
        }
    }
}

fn slope(tree: &mut WholeTree<'_>, gradient: &Moments) -> f64 {
    let mut slope = Slope { gradient, sum: 0.0 };
    tree.visit(&mut slope);
    slope.sum
}

struct Slope<'a> {
    gradient: &'a Moments,
    sum: f64,
}

impl LeafVisitor for Slope<'_> {
    fn visit<C: Real>(&mut self, leaf: WholeLeaf<'_, C>) {
        let Some(gradient) = self.gradient.get::<C>(leaf.index) else { return };
        self.sum += dot(leaf.spec, gradient, leaf.u);
    }
}

/// The derivative along a line with bounds: an element at a bound stays within it.
struct ProjectedSlope<'a> {
    /// The point, or `None` for the parameters.
    point: Option<&'a Moments>,
    gradient: &'a Moments,
    bounds: &'a Bounds,
    slope: f64,
    /// True if an element free at the start has met its bound.
    on_bound: bool,
}

impl<'a> ProjectedSlope<'a> {
    fn new(bounds: &'a Bounds, point: Option<&'a Moments>, gradient: &'a Moments) -> Self {
        ProjectedSlope { point, gradient, bounds, slope: 0.0, on_bound: false }
    }
}

impl LeafVisitor for ProjectedSlope<'_> {
    fn visit<C: Real>(&mut self, leaf: WholeLeaf<'_, C>) {
        let i = leaf.index;
        let (Some(gradient), Some(bounds)) = (self.gradient.get::<C>(i), self.bounds.leaf::<C>(i)) else { return };
        let point = self.point.and_then(|point| point.get::<C>(i)).unwrap_or(leaf.p);
        let mut moving = leaf.u.to_vec();
        for (((u, p), start), bounds) in moving.iter_mut().zip(point).zip(leaf.p).zip(bounds) {
            if is_blocked(*p, *u, bounds) {
                self.on_bound |= !is_blocked(*start, *u, bounds);
                *u = C::zero();
            }
        }
        self.slope += dot(leaf.spec, gradient, &moving);
    }
}

/// The change of the loss that a gradient predicts.
struct PredictedChange<'a> {
    point: &'a Moments,
    gradient: &'a Moments,
    sum: f64,
}

impl LeafVisitor for PredictedChange<'_> {
    fn visit<C: Real>(&mut self, leaf: WholeLeaf<'_, C>) {
        let (Some(point), Some(gradient)) = (self.point.get::<C>(leaf.index), self.gradient.get::<C>(leaf.index))
        else {
            return;
        };
        let moved: Vec<C> = point.iter().zip(leaf.p).map(|(to, from)| *to - *from).collect();
        self.sum += dot(leaf.spec, gradient, &moved);
    }
}

/// Writes a step's point: update and sum are rounded to the parameters' dtype.
struct WriteTrialPoint<'a> {
    t: f64,
    point: &'a mut Moments,
    bounds: Option<&'a Bounds>,
}

impl LeafVisitor for WriteTrialPoint<'_> {
    fn visit<C: Real>(&mut self, leaf: WholeLeaf<'_, C>) {
        let Some(point) = self.point.get_mut::<C>(leaf.index) else { return };
        with_dtype!(leaf.spec.dtype(), P => trial_point::<C, P>(C::of(self.t), leaf.p, leaf.u, point));
        if let Some(bounds) = self.bounds.and_then(|bounds| bounds.leaf::<C>(leaf.index)) {
            point.iter_mut().zip(bounds).for_each(|(point, bounds)| *point = clamp(*point, bounds));
        }
    }
}

fn trial_point<C: Real, P: Element>(t: C, p: &[C], u: &[C], point: &mut [C]) {
    for ((point, p), u) in point.iter_mut().zip(p).zip(u) {
        *point = convert::<P, C>(add_rounded(convert::<C, P>(*p), t * *u));
    }
}

/// Multiplies the updates; by 0 all become 0. Updates end at the bounds, or by rounding slightly beyond, where they are
/// cut off.
pub(super) struct ScaleUpdates<'a> {
    pub(super) t: f64,
    pub(super) bounds: Option<&'a Bounds>,
}

impl LeafVisitor for ScaleUpdates<'_> {
    fn visit<C: Real>(&mut self, leaf: WholeLeaf<'_, C>) {
        if self.t == 0.0 {
            return leaf.u.fill(C::zero());
        }
        let t = C::of(self.t);
        leaf.u.iter_mut().for_each(|u| *u = t * *u);
        if let Some(bounds) = self.bounds.and_then(|bounds| bounds.leaf::<C>(leaf.index)) {
            for ((u, p), bounds) in leaf.u.iter_mut().zip(leaf.p).zip(bounds) {
                *u = clip_to_bound(*p, *u, bounds);
            }
        }
    }
}

/// Shortens the update to the bound, or by rounding slightly beyond it.
fn clip_to_bound<C: Real>(p: C, u: C, [lower, upper]: [C; 2]) -> C {
    let (bound, out) = if p + u < lower {
        (lower, -C::one())
    } else if p + u > upper {
        (upper, C::one())
    } else {
        return u;
    };
    let whole = bound - p;
    if (p + whole - bound) * out >= C::zero() { whole } else { whole + out * C::epsilon() * whole.abs() }
}

/// Returns the guess, or 1 after a failed search.
fn guess_or_one(guess: f64) -> f64 {
    if guess > 0.0 && guess.is_finite() { guess } else { 1.0 }
}

/// Returns the positive part; infinite for NaN.
fn positive_part(x: f64) -> f64 {
    if x.is_nan() { f64::INFINITY } else { x.max(0.0) }
}
