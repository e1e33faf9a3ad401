//! A tree as one long vector, visited in chunks: the operand of algorithms on whole trees. It is a tree to change, or
//! the parameters after a coming step.

use super::operand::Values;
use crate::Real;
use crate::internal::numeric::sum_tile;
use crate::internal::state::{ROW_MAJOR_CHUNK, read, rewrite};
use crate::part::{LeafVisitor, WholeLeaf, WholeTree};
use crate::tree::LeafMut;

/// A vector, and beside it a second vector of the set, such as a normal, or an empty one.
pub trait Vector {
    fn elements(&self) -> usize;
    /// Visits all elements in chunks.
    fn read(&mut self, each: &mut dyn FnMut(&[f64], &[f64]));
    /// Overwrites all elements in chunks.
    fn rewrite(&mut self, each: &mut dyn FnMut(&mut [f64], &[f64]));
}

impl dyn Vector + '_ {
    pub(super) fn sum(&mut self, f: impl Fn(f64) -> f64) -> f64 {
        let mut sum = 0.0;
        self.read(&mut |x, _| sum += sum_tile(x, &f));
        sum
    }

    pub(super) fn sum_with(&mut self, f: impl Fn(f64, f64) -> f64) -> f64 {
        let (mut sum, mut products) = (0.0, [0.0; ROW_MAJOR_CHUNK]);
        self.read(&mut |x, a| {
            let products = &mut products[..x.len()];
            products.iter_mut().zip(x.iter().zip(a)).for_each(|(product, (x, a))| *product = f(*x, *a));
            sum += sum_tile(products, |product: f64| product);
        });
        sum
    }

    /// Returns `max f(x)`, NaN if one is; 0 without elements.
    pub(super) fn max(&mut self, f: impl Fn(f64) -> f64) -> f64 {
        let mut most = None;
        self.read(&mut |x, _| {
            for x in x.iter().map(|x| f(*x)) {
                most = Some(most.map_or(x, |most: f64| if x.is_nan() || x > most { x } else { most }));
            }
        });
        most.unwrap_or(0.0)
    }

    pub(super) fn map(&mut self, f: impl Fn(f64) -> f64) {
        self.rewrite(&mut |x, _| x.iter_mut().for_each(|x| *x = f(*x)));
    }

    pub(super) fn map_with(&mut self, f: impl Fn(f64, f64) -> f64) {
        self.rewrite(&mut |x, a| x.iter_mut().zip(a).for_each(|(x, a)| *x = f(*x, *a)));
    }
}

/// The leaves of a tree; `vector_values` has an entry per leaf, or none.
pub(super) struct TreeVector<'a, 'b> {
    pub(super) leaves: &'a mut [LeafMut<'b>],
    pub(super) vector_values: &'a [Values],
}

impl Vector for TreeVector<'_, '_> {
    fn elements(&self) -> usize {
        self.leaves.iter().map(|leaf| leaf.shape().iter().product::<usize>()).sum()
    }

    fn read(&mut self, each: &mut dyn FnMut(&[f64], &[f64])) {
        let mut scratch = [0.0; ROW_MAJOR_CHUNK];
        for (i, leaf) in self.leaves.iter().enumerate() {
            let vector_values = self.vector_values.get(i);
            let shared = leaf.shared();
            read(&shared, |start, x| each(x, row_major(vector_values, start, &mut scratch[..x.len()])));
        }
    }

    fn rewrite(&mut self, each: &mut dyn FnMut(&mut [f64], &[f64])) {
        let mut scratch = [0.0; ROW_MAJOR_CHUNK];
        for (i, leaf) in self.leaves.iter_mut().enumerate() {
            let vector_values = self.vector_values.get(i);
            rewrite(leaf, |start, x| {
                let vector_values = row_major(vector_values, start, &mut scratch[..x.len()]);
                each(x, vector_values);
            });
        }
    }
}

fn row_major<'a>(vector_values: Option<&'a Values>, start: usize, scratch: &'a mut [f64]) -> &'a [f64] {
    vector_values.map_or(&[], |values| values.row_major(start, scratch))
}

/// Parameters plus updates, both in memory. Rewriting it rewrites the updates.
pub(super) struct SumVector<'a, 'b> {
    pub(super) tree: &'a mut WholeTree<'b>,
    pub(super) vector_values: &'a [Values],
}

impl Vector for SumVector<'_, '_> {
    fn elements(&self) -> usize {
        let leaves = self.tree.structure().leaves().iter().enumerate();
        leaves.filter(|(i, _)| self.tree.is_active(*i)).map(|(_, leaf)| leaf.len()).sum()
    }

    fn read(&mut self, each: &mut dyn FnMut(&[f64], &[f64])) {
        self.tree.visit(&mut Read { vector_values: self.vector_values, each });
    }

    fn rewrite(&mut self, each: &mut dyn FnMut(&mut [f64], &[f64])) {
        self.tree.visit(&mut Rewrite { vector_values: self.vector_values, each });
    }
}

struct Read<'a> {
    vector_values: &'a [Values],
    each: &'a mut dyn FnMut(&[f64], &[f64]),
}

impl LeafVisitor for Read<'_> {
    fn visit<C: Real>(&mut self, leaf: WholeLeaf<'_, C>) {
        let (mut sums, mut scratch) = ([0.0; ROW_MAJOR_CHUNK], [0.0; ROW_MAJOR_CHUNK]);
        for (k, (u, p)) in leaf.u.chunks(ROW_MAJOR_CHUNK).zip(leaf.p.chunks(ROW_MAJOR_CHUNK)).enumerate() {
            let x = &mut sums[..u.len()];
            add(x, u, p);
            (self.each)(x, row_major(self.vector_values.get(leaf.index), k * ROW_MAJOR_CHUNK, &mut scratch[..u.len()]));
        }
    }
}

struct Rewrite<'a> {
    vector_values: &'a [Values],
    each: &'a mut dyn FnMut(&mut [f64], &[f64]),
}

impl LeafVisitor for Rewrite<'_> {
    fn visit<C: Real>(&mut self, leaf: WholeLeaf<'_, C>) {
        let (mut sums, mut scratch) = ([0.0; ROW_MAJOR_CHUNK], [0.0; ROW_MAJOR_CHUNK]);
        for (k, (u, p)) in leaf.u.chunks_mut(ROW_MAJOR_CHUNK).zip(leaf.p.chunks(ROW_MAJOR_CHUNK)).enumerate() {
            let x = &mut sums[..u.len()];
            add(x, u, p);
            (self.each)(x, row_major(self.vector_values.get(leaf.index), k * ROW_MAJOR_CHUNK, &mut scratch[..u.len()]));
            u.iter_mut().zip(x.iter().zip(p)).for_each(|(u, (x, p))| *u = C::of(x - p.as_f64()));
        }
    }
}

fn add<C: Real>(x: &mut [f64], u: &[C], p: &[C]) {
    x.iter_mut().zip(u.iter().zip(p)).for_each(|(x, (u, p))| *x = u.as_f64() + p.as_f64());
}
