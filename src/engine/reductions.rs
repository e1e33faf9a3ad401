//! Reductions over leaves and the tree, and inner products.

use super::again::Again;
use super::leaf::is_among;
use super::pieces::Pieces;
use super::sum_tile;
use crate::element::{DType, Real};
use crate::tree::{Cursor, LeafSpec, Structure, dense_strides};

/// The reductions of a pass, by leaf or for the whole tree.
#[derive(Clone, Copy)]
pub struct Sums<'a> {
    pub(crate) pieces: &'a Pieces,
    /// `width` values for each piece.
    pub(crate) values: &'a [f64],
    pub(crate) width: usize,
    /// Where the asking stage's own begin.
    pub(crate) first: usize,
    pub(crate) structure: &'a Structure,
    /// Which leaves rest in this step; empty where none may.
    pub(crate) resting: &'a [bool],
    /// Where parts ask for sums that must be added up again. If there is this, nothing is decided yet.
    pub(crate) again: Option<&'a Again>,
}

impl<'a> Sums<'a> {
    /// The same sums, as seen by a stage that has `n` sums of others before its own.
    pub fn skip(self, n: usize) -> Sums<'a> {
        Sums { first: self.first + n, ..self }
    }

    /// The stage's sum `i` over the whole tree.
    pub fn total(&self, i: usize) -> f64 {
        self.over(i, 0..self.pieces.all.len())
    }

    /// The stage's sum `i` over one leaf.
    pub fn leaf(&self, i: usize, leaf: usize) -> f64 {
        self.over(i, self.pieces.of_leaf[leaf].clone())
    }

    /// Whether a leaf rests in this step, so that nothing of it was added up; see
    /// [`StepContext::rests`](super::StepContext::rests).
    pub fn rests(&self, leaf: usize) -> bool {
        is_among(self.resting, leaf)
    }

    /// How many leaves there are.
    pub fn leaves(&self) -> usize {
        self.structure.len()
    }

    /// How many elements a leaf has.
    pub fn leaf_len(&self, leaf: usize) -> usize {
        self.structure.leaves()[leaf].len()
    }

    /// True if the arithmetic of a leaf is done in `f64`, of which squares can overflow or vanish.
    pub(crate) fn is_double(&self, leaf: usize) -> bool {
        self.structure.leaves()[leaf].dtype() == DType::F64
    }

    fn over(&self, i: usize, pieces: core::ops::Range<usize>) -> f64 {
        pieces.map(|piece| self.values[piece * self.width + self.first + i]).sum()
    }
}

/// Products that are worked out and added up together.
const STRETCH: usize = 512;

/// The inner product of two arrays that lie as a leaf does, in `f64` and in row-major order whatever their memory
/// order.
pub(crate) fn dot<C: Real>(leaf: &LeafSpec, a: &[C], b: &[C]) -> f64 {
    let mut products = [0.0; STRETCH];
    let (mut sum, mut filled) = (0.0, 0);
    let order = dense_strides(leaf.shape());
    for run in Cursor::new(leaf.shape(), &order, leaf.strides(), 0).take(a.len()) {
        for i in 0..run.len {
            let at = (run.offset + i as isize * run.stride) as usize;
            products[filled] = a[at].as_f64() * b[at].as_f64();
            filled += 1;
            if filled == STRETCH {
                sum += sum_tile(&products, |x: f64| x);
                filled = 0;
            }
        }
    }
    sum + sum_tile(&products[..filled], |x: f64| x)
}
