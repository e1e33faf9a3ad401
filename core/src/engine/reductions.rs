//! Reductions over leaves and the tree, and inner products.

use super::chunks::Chunks;
use super::leaf::is_among;
use super::repeats::Repeats;
use super::sum_tile;
use crate::element::{DType, Real};
use crate::tree::{Cursor, LeafSpec, Structure, dense_strides};

/// The reductions of a pass, by leaf or over the tree.
#[derive(Clone, Copy)]
pub struct Sums<'a> {
    pub(crate) chunks: &'a Chunks,
    pub(crate) values: &'a [f64],
    pub(crate) width: usize,
    /// The stage's first sum.
    pub(crate) first: usize,
    pub(crate) structure: &'a Structure,
    /// Leaves that rest in this step; empty if none may.
    pub(crate) resting: &'a [bool],
    /// Receives requests to repeat reductions; while `Some`, results are not final.
    pub(crate) repeats: Option<&'a Repeats>,
}

impl<'a> Sums<'a> {
    /// Returns these sums for a stage behind `n` sums of others.
    pub fn skip(self, n: usize) -> Sums<'a> {
        Sums { first: self.first + n, ..self }
    }

    /// Returns the stage's sum `i` over the whole tree.
    pub fn total(&self, i: usize) -> f64 {
        self.over(i, 0..self.chunks.all.len())
    }

    /// Returns the stage's sum `i` over one leaf.
    pub fn leaf(&self, i: usize, leaf: usize) -> f64 {
        self.over(i, self.chunks.of_leaf[leaf].clone())
    }

    /// Returns true if a leaf rests in this step, so that it did not contribute.
    ///
    /// See [`StepContext::rests`](super::StepContext::rests).
    pub fn rests(&self, leaf: usize) -> bool {
        is_among(self.resting, leaf)
    }

    /// Returns the number of leaves.
    pub fn leaves(&self) -> usize {
        self.structure.len()
    }

    /// Returns the number of elements of a leaf.
    pub fn leaf_len(&self, leaf: usize) -> usize {
        self.structure.leaves()[leaf].len()
    }

    /// Returns true for `f64` leaves, whose squares can overflow or vanish.
    #[doc(hidden)]
    pub fn is_double(&self, leaf: usize) -> bool {
        self.structure.leaves()[leaf].dtype() == DType::F64
    }

    fn over(&self, i: usize, chunks: core::ops::Range<usize>) -> f64 {
        chunks.map(|chunk| self.values[chunk * self.width + self.first + i]).sum()
    }
}

/// Products computed before they are added.
const PRODUCT_BLOCK: usize = 512;

/// Returns the inner product of two arrays in memory order. Products are added in `f64`, in row-major order.
pub fn dot<C: Real>(leaf: &LeafSpec, a: &[C], b: &[C]) -> f64 {
    let mut products = [0.0; PRODUCT_BLOCK];
    let (mut sum, mut filled) = (0.0, 0);
    let order = dense_strides(leaf.shape());
    for run in Cursor::new(leaf.shape(), &order, leaf.strides(), 0).take(a.len()) {
        for i in 0..run.len {
            let at = (run.offset + i as isize * run.stride) as usize;
            products[filled] = a[at].as_f64() * b[at].as_f64();
            filled += 1;
            if filled == PRODUCT_BLOCK {
                sum += sum_tile(&products, |x: f64| x);
                filled = 0;
            }
        }
    }
    sum + sum_tile(&products[..filled], |x: f64| x)
}
