//! Whole leaves that a device holds.

use super::whole::{LeafVisitor, NOT_REMOTE};
use crate::state::Moments;
use crate::tree::LeafSpec;

/// A recorded value: the index of a line in the recorded work on a leaf. Its value is an array or a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line(pub(crate) u32);

/// Records the work on a whole leaf that a device holds.
///
/// Arrays have the leaf's elements in memory order. An operation on an array and a number applies the number to each
/// element.
///
/// Sizes that do not match and lines of another leaf are errors that name the part.
pub trait RemoteLeaf {
    /// Returns the updates before the part.
    fn update(&mut self) -> Line;
    /// Reads a leaf's array of `of`; `None` if it has none.
    fn array(&mut self, of: &Moments, leaf: usize) -> Option<Line>;
    /// Writes a leaf's array of `of`, if it has one.
    fn write(&mut self, of: &Moments, leaf: usize, line: Line);
    /// Returns `value`, as a number of this step.
    fn number(&mut self, value: f64) -> Line;
    /// `x + y`
    fn add(&mut self, x: Line, y: Line) -> Line;
    /// `x·y`
    fn mul(&mut self, x: Line, y: Line) -> Line;
    /// `x / y`
    fn div(&mut self, x: Line, y: Line) -> Line;
    /// Returns the larger value.
    fn max(&mut self, x: Line, y: Line) -> Line;
    /// Returns the absolute value.
    fn abs(&mut self, x: Line) -> Line;
    /// Returns the square root.
    fn sqrt(&mut self, x: Line) -> Line;
    /// Transposes a row-major array of shape `[a, b, c, d]` to `[a, c, b, d]`.
    fn transpose(&mut self, x: Line, shape: [usize; 4]) -> Line;
    /// Multiplies `[n, k]` by `[k, m]`, or by `[m, k]` transposed, for each index of the first axis of `shape`.
    fn product(&mut self, x: Line, y: Line, shape: [usize; 4], transposed: bool) -> Line;
    /// Returns the inner product of each slice of `chunk` elements.
    fn dots(&mut self, x: Line, y: Line, len: usize, chunk: usize) -> Line;
    /// Repeats each of `len` elements `times` times, one after another.
    fn repeat(&mut self, x: Line, len: usize, times: usize) -> Line;
    /// Makes the recording fail, with the reason why the work cannot be recorded.
    fn refuse(&mut self, why: &'static str);

    /// `a·x + b·y`
    fn axpby(&mut self, a: f64, x: Line, b: f64, y: Line) -> Line {
        let [a, b] = [a, b].map(|of| self.number(of));
        let (x, y) = (self.mul(a, x), self.mul(b, y));
        self.add(x, y)
    }
}

/// The updates of whole leaves on a device, between two passes.
pub trait RemoteTree {
    /// Attributes the following work to a part.
    fn enter(&mut self, part: &'static str);
    /// Records the work on a leaf: from the updates that the last pass stored to those that the next pass starts from.
    fn leaf(&mut self, leaf: usize, spec: &LeafSpec, does: &mut dyn FnMut(&mut dyn RemoteLeaf) -> Line);
}

/// The device that holds the leaves of a tree; none if the host does.
pub struct OnDevice<'a>(Option<&'a mut (dyn RemoteTree + 'a)>);

impl<'a> OnDevice<'a> {
    pub(super) const NONE: OnDevice<'a> = OnDevice(None);

    pub(super) fn of(tree: &'a mut (dyn RemoteTree + 'a)) -> OnDevice<'a> {
        OnDevice(Some(tree))
    }

    pub(super) fn reborrow(&mut self) -> OnDevice<'_> {
        OnDevice(self.0.as_mut().map(|tree| &mut **tree as &mut dyn RemoteTree))
    }

    /// Attributes the following work to a part.
    pub(super) fn enter(&mut self, part: &'static str) {
        self.0.iter_mut().for_each(|tree| tree.enter(part));
    }

    /// Records the work of a visitor on a leaf; returns false without a device.
    pub(super) fn visit<V: LeafVisitor>(&mut self, leaf: usize, spec: &LeafSpec, visitor: &mut V) -> bool {
        self.0.iter_mut().for_each(|tree| tree.leaf(leaf, spec, &mut |on| visitor.visit_remote(leaf, on)));
        self.0.is_some()
    }

    /// Makes the recording of a reader of updates fail; returns false without a device.
    pub(super) fn refuse(&mut self, leaf: usize, spec: &LeafSpec) -> bool {
        let mut refuse = |on: &mut dyn RemoteLeaf| {
            on.refuse(NOT_REMOTE);
            on.update()
        };
        self.0.iter_mut().for_each(|tree| tree.leaf(leaf, spec, &mut refuse));
        self.0.is_some()
    }
}
