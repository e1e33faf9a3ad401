//! Whole leaves that another machine has.

use crate::state::Moments;
use crate::tree::LeafSpec;

/// An array of a leaf that another machine has, or a number: which line it is of what is written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line(pub(crate) u32);

/// A leaf that another machine has: what is done to it as a whole is written down, to be done there.
///
/// Arrays have the leaf's elements one after another, in memory order. A line of one number goes with each of their
/// elements.
///
/// Sizes that do not fit, and lines of another leaf, are an error that names the part.
pub trait RemoteLeaf {
    /// The updates that come in.
    fn update(&mut self) -> Line;
    /// The array that moments in the state have for a leaf; `None` if they have none.
    fn array(&mut self, of: &Moments, leaf: usize) -> Option<Line>;
    /// Writes the array that moments in the state have for a leaf, if they have one.
    fn write(&mut self, of: &Moments, leaf: usize, line: Line);
    /// A number of this step.
    fn number(&mut self, value: f64) -> Line;
    /// `x + y`
    fn add(&mut self, x: Line, y: Line) -> Line;
    /// `x·y`
    fn mul(&mut self, x: Line, y: Line) -> Line;
    /// `x / y`
    fn div(&mut self, x: Line, y: Line) -> Line;
    /// The larger one.
    fn max(&mut self, x: Line, y: Line) -> Line;
    /// The size.
    fn abs(&mut self, x: Line) -> Line;
    /// The root.
    fn sqrt(&mut self, x: Line) -> Line;
    /// `[a, b, c, d]`, in row-major order, as `[a, c, b, d]`.
    fn turn(&mut self, x: Line, shape: [usize; 4]) -> Line;
    /// For each of the first number the product of `[n, k]` and `[k, m]`, or of `[n, k]` and `[m, k]` transposed.
    fn product(&mut self, x: Line, y: Line, shape: [usize; 4], transposed: bool) -> Line;
    /// The inner product of each stretch of so many elements.
    fn dots(&mut self, x: Line, y: Line, len: usize, stretch: usize) -> Line;
    /// Each of so many elements as often as said, one after another.
    fn spread(&mut self, x: Line, len: usize, times: usize) -> Line;
    /// Says why it cannot be written down.
    fn refuse(&mut self, why: &'static str);

    /// `of_x·x + of_y·y`
    fn mix(&mut self, of_x: f64, x: Line, of_y: f64, y: Line) -> Line {
        let [of_x, of_y] = [of_x, of_y].map(|of| self.number(of));
        let (x, y) = (self.mul(of_x, x), self.mul(of_y, y));
        self.add(x, y)
    }
}

/// The updates of whole leaves on another machine, between two passes.
pub trait RemoteTree {
    /// From here on it is what this part does.
    fn enter(&mut self, part: &'static str);
    /// Writes down what is done to a leaf: from the updates that the last pass has stored, those that the next begins
    /// with.
    fn leaf(&mut self, leaf: usize, spec: &LeafSpec, does: &mut dyn FnMut(&mut dyn RemoteLeaf) -> Line);
}
