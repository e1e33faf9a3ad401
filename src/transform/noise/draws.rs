//! Random numbers for the elements of leaves.

use crate::internal::numeric::{Cursor, Strides, dense_strides, is_dense, leaf_key, path_hash};
use crate::internal::state::state_fields;
use crate::part::prelude::*;
use crate::state::RandomKey;
use crate::tree::LeafSpec;

/// The inputs of the random numbers: a seed, the step, the leaf's path and the element's place in row-major order
/// alone.
#[derive(Clone, Debug)]
pub struct Draws {
    /// Steps done.
    pub count: Count,
    /// The seed; a run resumed from this state keeps it.
    pub key: RandomKey,
    leaves: Vec<Leaf>,
    step: u64,
}

state_fields!(Draws { count, key } facts { leaves });

#[derive(Clone, Debug, Hash)]
struct Leaf {
    /// FNV-1a of the path.
    hash: u64,
    dtype: DType,
    shape: Vec<usize>,
    /// The strides, unless memory order is row-major.
    strides: Option<Strides>,
}

/// Random numbers per element. A trait, because functions passed on may not be inlined, and then do not vectorize.
pub(super) trait Numbers<const N: usize> {
    type Number: Copy + Default;
    /// Draws an element's number. Must be `#[inline(always)]`, as `blocks`.
    fn one(element: u64, key: [u32; 2]) -> Self::Number;
    /// Draws the numbers of blocks from `first` on.
    fn blocks(first: u64, key: [u32; 2], to: &mut [[Self::Number; N]]);
}

impl Draws {
    pub(super) fn new(seed: u64, at: &InitContext<'_>) -> Draws {
        let leaf = |leaf: &LeafSpec| {
            let dense = is_dense(leaf.shape(), leaf.strides(), &dense_strides(leaf.shape()));
            Leaf {
                hash: path_hash(leaf.path()),
                dtype: leaf.dtype(),
                shape: leaf.shape().into(),
                strides: (!dense).then(|| leaf.strides().into()),
            }
        };
        let leaves = at.structure().leaves().iter().map(leaf).collect();
        Draws { count: Count::default(), key: RandomKey::new(seed), leaves, step: 0 }
    }

    pub(super) fn dtype(&self, leaf: usize) -> DType {
        self.leaves[leaf].dtype
    }

    /// Begins a step and returns its index.
    pub(super) fn begin(&mut self) -> u64 {
        self.step = self.count.get();
        self.count.increment();
        self.step
    }

    #[inline(always)]
    pub(super) fn key(&self, leaf: usize) -> [u32; 2] {
        leaf_key(self.key.get(), self.step, self.leaves[leaf].hash)
    }

    /// Draws a chunk's numbers from its leaf's [`key`](Draws::key), in memory order.
    ///
    /// Uses plain loops: iterators' calls may not be inlined, and then do not vectorize.
    #[inline(always)]
    pub(super) fn fill<X: Numbers<N>, const N: usize>(
        &self,
        (leaf, key): (usize, [u32; 2]),
        start: usize,
        numbers: &mut [X::Number],
    ) {
        let leaf = &self.leaves[leaf];
        if let Some(strides) = &leaf.strides {
            let n = numbers.len();
            let mut numbers = numbers.iter_mut();
            for run in Cursor::new(&leaf.shape, strides, &dense_strides(&leaf.shape), start).take(n) {
                for i in 0..run.len as isize {
                    if let Some(number) = numbers.next() {
                        *number = X::one((run.offset + i * run.stride) as u64, key);
                    }
                }
            }
            return;
        }
        // Only a chunk's first block may start in its middle.
        let (head, rest) = numbers.split_at_mut(start.next_multiple_of(N).min(start + numbers.len()) - start);
        for (i, number) in head.iter_mut().enumerate() {
            *number = X::one((start + i) as u64, key);
        }
        let first = start.div_ceil(N) as u64;
        let (blocks, tail) = rest.as_chunks_mut::<N>();
        X::blocks(first, key, blocks);
        let n = tail.len();
        if n > 0 {
            let mut last = [X::Number::default(); N];
            X::blocks(first + blocks.len() as u64, key, core::slice::from_mut(&mut last));
            tail.copy_from_slice(&last[..n]);
        }
    }
}
