//! Per-example gradients, which have an additional first axis.
#![allow(unsafe_code, reason = "slices of raw leaves of any dtype and layout; see `memory`")]

use core::marker::PhantomData;

use super::simd::{Job, current_simd_level, dispatch};
use super::sums::sum_tile;
use crate::element::{DType, Element, Real, with_dtype};
use crate::error::{Error, Result};
use crate::tree::{Cursor, LeafParts, LeafSpec, Structure, Tree, Walk, is_dense};

/// Gradients per example, along the first axis of each leaf.
pub struct Examples<'a> {
    leaves: Vec<LeafParts>,
    len: usize,
    borrow: PhantomData<&'a ()>,
}

impl<'a> Examples<'a> {
    /// Collects the leaves.
    ///
    /// # Errors
    ///
    /// If a leaf lacks its parameter's shape behind a first axis of common length, if its dtype does not convert to the
    /// compute type without loss, or if the tree has no example.
    #[doc(hidden)]
    pub fn of<G: Tree + ?Sized>(grads: &'a G, structure: &Structure) -> Result<Examples<'a>> {
        let mut found = Vec::new();
        grads.walk(&mut Walk::new(&mut String::new(), &mut |path, leaf| found.push((String::from(path), leaf.parts))));
        let len = found.first().map_or(1, |(_, leaf)| leaf.shape.first().copied().unwrap_or(1));
        let fits = |ours: DType, theirs: DType| theirs.size() <= ours.compute().size();
        let same = |spec: &LeafSpec, (path, leaf): &(String, LeafParts)| {
            let shape = leaf.shape.split_first();
            spec.path() == path
                && shape.is_some_and(|(first, rest)| *first == len && rest == spec.shape())
                && fits(spec.dtype(), leaf.data.dtype())
        };
        let leaves = structure.leaves();
        if found.len() != leaves.len() || !leaves.iter().zip(&found).all(|(spec, leaf)| same(spec, leaf)) {
            let differences = structure.batched(len).compare(&Structure::of(grads)?, fits);
            let what = "the per-example gradients do not fit the parameters with a leading axis of examples";
            return Err(Error::structure(what, differences));
        }
        if len == 0 {
            return Err(Error::argument("step_per_example", "grads", "of at least one example", 0));
        }
        Ok(Examples { leaves: found.into_iter().map(|(_, leaf)| leaf).collect(), len, borrow: PhantomData })
    }

    /// Returns the number of examples.
    #[doc(hidden)]
    pub fn count(&self) -> usize {
        self.len
    }

    /// Returns the sum of squares of one example's elements, each times `scale`.
    #[doc(hidden)]
    pub fn squares(&self, leaf: usize, spec: &LeafSpec, example: usize, scale: f64) -> f64 {
        let mut sum = 0.0;
        self.visit(leaf, spec, example, Squares(&mut sum, scale));
        sum
    }

    /// Adds one example's elements, times `factor`, in the state's memory order.
    #[doc(hidden)]
    pub fn add(&self, leaf: usize, spec: &LeafSpec, example: usize, factor: f64, to: &mut [f64]) {
        self.visit(leaf, spec, example, AddTimes { factor, to });
    }

    fn visit(&self, leaf: usize, spec: &LeafSpec, example: usize, job: impl OnExample) {
        let parts @ LeafParts { data, strides, .. } = &self.leaves[leaf];
        let (Some((first, rest)), n) = (strides.split_first(), spec.len()) else { return };
        let dense = is_dense(spec.shape(), rest, spec.strides()) && (*first == n as isize || self.len == 1);
        with_dtype!(data.dtype(), T => if dense {
            // SAFETY: `Examples` borrows the tree, and the leaf is contiguous with `self.len * n` elements.
            let stretch = unsafe { data.slice::<T>(example * n, n) };
            job.dense(stretch);
        } else {
            let mut elements = Vec::with_capacity(n);
            let view = parts.view();
            for run in Cursor::new(spec.shape(), spec.strides(), rest, 0).take(n) {
                let run = crate::tree::Run { offset: run.offset + example as isize * first, ..run };
                // SAFETY: `Examples` borrows the tree; the cursor stays inside the example's shape and `example` is
                // below `self.len`.
                unsafe { view.read::<T>(run, |x| elements.push(x)) };
            }
            job.dense(&elements);
        });
    }
}

trait OnExample {
    fn dense<T: Element>(self, elements: &[T]);
}

struct Squares<'a>(&'a mut f64, f64);

impl OnExample for Squares<'_> {
    fn dense<T: Element>(self, elements: &[T]) {
        *self.0 = dispatch(current_simd_level(), SumOfSquares(elements, self.1));
    }
}

struct SumOfSquares<'a, T>(&'a [T], f64);

impl<T: Element> Job for SumOfSquares<'_, T> {
    type Output = f64;
    #[inline(always)]
    fn run(self) -> f64 {
        // In slices of the compute type, as `sum_tile` requires.
        let mut wide = [T::Compute::of(0.0); 256];
        let mut sum = 0.0;
        for stretch in self.0.chunks(256) {
            for (i, x) in stretch.iter().enumerate() {
                wide[i] = x.widen();
            }
            sum += sum_tile(&wide[..stretch.len()], |x| (self.1 * x.as_f64()) * (self.1 * x.as_f64()));
        }
        sum
    }
}

struct AddTimes<'a> {
    factor: f64,
    to: &'a mut [f64],
}

impl OnExample for AddTimes<'_> {
    fn dense<T: Element>(self, elements: &[T]) {
        dispatch(current_simd_level(), AddElements { factor: self.factor, to: self.to, elements });
    }
}

struct AddElements<'a, T> {
    factor: f64,
    to: &'a mut [f64],
    elements: &'a [T],
}

impl<T: Element> Job for AddElements<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        add_times(self.factor, self.elements, self.to);
    }
}

#[inline(always)]
fn add_times<T: Element>(factor: f64, elements: &[T], to: &mut [f64]) {
    let elements = &elements[..to.len()];
    for i in 0..to.len() {
        to[i] += factor * elements[i].as_f64();
    }
}
