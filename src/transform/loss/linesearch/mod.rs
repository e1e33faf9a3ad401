//! How far to go along a direction: the searches themselves, on numbers, and the line that they search, in a tree.

mod backtracking;
mod zoom;

pub(super) use backtracking::Backtracking;
pub(super) use zoom::Zoom;

use crate::element::{Element, Real, convert, with_dtype};
use crate::engine::{LeafVisitor, WholeLeaf, WholeTree, add_rounded, dot};
use crate::state::Moments;

/// What is known of the loss at one point of the line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    /// How many times the direction it is away from the start.
    pub(super) t: f64,
    pub(super) value: f64,
    /// The derivative by `t`.
    pub(super) slope: f64,
}

impl Point {
    /// Whether there are a value and a slope. A loss of −∞ is no success but an overflow.
    fn is_there(self) -> bool {
        self.value.is_finite() && self.slope.is_finite()
    }
}

/// The loss along a direction.
pub(super) trait Line {
    /// Evaluates the loss, and its slope if the search needs slopes.
    fn at(&mut self, t: f64) -> Point;

    /// Keeps the gradient at the point evaluated last, and forgets the one kept before: the search may end there.
    fn keep(&mut self) {}
}

/// The line through the parameters along the updates of a tree.
pub(super) struct TreeLine<'a, 't> {
    pub(super) tree: &'a mut WholeTree<'t>,
    /// Room for a point.
    pub(super) point: &'a mut Moments,
    /// Gradients, if slopes are asked for: at the point evaluated last, and the one that is kept.
    pub(super) gradients: Option<[&'a mut Moments; 2]>,
}

impl TreeLine<'_, '_> {
    /// The slope at the start: of the gradient that the step was given, which is also the one kept first.
    pub(super) fn first_slope(&mut self) -> f64 {
        let gradient = match &mut self.gradients {
            Some([_, kept]) => &mut **kept,
            None => &mut *self.point,
        };
        read_gradient(self.tree, gradient);
        slope(self.tree, gradient)
    }
}

impl Line for TreeLine<'_, '_> {
    fn at(&mut self, t: f64) -> Point {
        self.tree.visit(&mut GoTo { t, point: self.point });
        let Some([gradient, _]) = &mut self.gradients else {
            return Point { t, value: self.tree.value_at(self.point), slope: f64::NAN };
        };
        let value = self.tree.value_and_grad_at(self.point, gradient);
        Point { t, value, slope: slope(self.tree, gradient) }
    }

    fn keep(&mut self) {
        if let Some([last, kept]) = &mut self.gradients {
            core::mem::swap(*last, *kept);
        }
    }
}

/// Copies the gradient that the step was given.
fn read_gradient(tree: &WholeTree<'_>, to: &mut Moments) {
    for leaf in 0..to.len() {
        if let Some(to) = to.get_mut::<f64>(leaf) {
            tree.gradient(leaf, to);
        } else if let Some(to) = to.get_mut::<f32>(leaf) {
            tree.gradient(leaf, to);
        }
    }
}

/// The derivative along the updates.
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

/// Writes down where the parameters will be: the update is rounded to their type, and so is the sum.
struct GoTo<'a> {
    t: f64,
    point: &'a mut Moments,
}

impl LeafVisitor for GoTo<'_> {
    fn visit<C: Real>(&mut self, leaf: WholeLeaf<'_, C>) {
        let Some(point) = self.point.get_mut::<C>(leaf.index) else { return };
        with_dtype!(leaf.spec.dtype(), P => go_to::<C, P>(C::of(self.t), leaf.p, leaf.u, point));
    }
}

fn go_to<C: Real, P: Element>(t: C, p: &[C], u: &[C], point: &mut [C]) {
    for ((point, p), u) in point.iter_mut().zip(p).zip(u) {
        *point = convert::<P, C>(add_rounded(convert::<C, P>(*p), t * *u));
    }
}

/// Multiplies the updates; by 0 they are 0 whatever they were.
pub(super) struct Stretch(pub(super) f64);

impl LeafVisitor for Stretch {
    fn visit<C: Real>(&mut self, leaf: WholeLeaf<'_, C>) {
        if self.0 == 0.0 {
            leaf.u.fill(C::zero());
        } else {
            let t = C::of(self.0);
            leaf.u.iter_mut().for_each(|u| *u = t * *u);
        }
    }
}

/// A first guess has to be a length; after a search that failed it is not.
fn guess_or_one(guess: f64) -> f64 {
    if guess > 0.0 && guess.is_finite() { guess } else { 1.0 }
}

/// By how much something that should not be positive is; infinite if it is not a number.
fn excess(x: f64) -> f64 {
    if x.is_nan() { f64::INFINITY } else { x.max(0.0) }
}
