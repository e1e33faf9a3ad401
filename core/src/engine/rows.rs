#![allow(unsafe_code, reason = "rows of raw leaves of any type and layout; see `memory`")]

use super::chunks::Chunks;
use super::leaf::{TableLeaf, read_in_order};
use super::simd::current_simd_level;
use crate::element::{DType, Real};
use crate::memory::{Buffer, RawSlice};
use crate::tree::{Difference, LeafParts, LeafSpec, Structure, dense_strides};

/// A step's row-sparse gradients. Steps reuse allocations.
#[derive(Default)]
pub(crate) struct Rows {
    pub(crate) leaves: Vec<usize>,
    /// Rows by leaf; those of dense leaves are stale.
    pub(crate) of_leaf: Vec<LeafRows>,
    pub(crate) chunks: Chunks,
    order: Vec<(usize, usize)>,
}

#[derive(Default)]
pub(crate) struct LeafRows {
    /// The indices, ascending.
    pub(crate) rows: Vec<usize>,
    /// The sum of each row's gradients, contiguous; the buffer may be longer.
    sums: Option<Buffer>,
    columns: usize,
}

/// Returns the differences of rows from those that a leaf can have.
pub(crate) fn differences(leaf: &LeafSpec, values: &LeafParts, indices: &[usize]) -> Vec<Difference> {
    let (path, [found, shape]) = (|| leaf.path().into(), [&values.shape[..], leaf.shape()]);
    let Some((&rows, columns)) = shape.split_first() else {
        return vec![Difference::Row { path: path(), rows: 0, found: indices.first().copied().unwrap_or(0) }];
    };
    let mut differences = Vec::new();
    if found.split_first() != Some((&indices.len(), columns)) {
        let expected = [&[indices.len()], columns].concat();
        differences.push(Difference::Rows { path: path(), expected, found: found.into() });
    }
    if let Some(&found) = indices.iter().find(|index| **index >= rows) {
        differences.push(Difference::Row { path: path(), rows, found });
    }
    if rows > 1 && leaf.len() > 0 && leaf.strides()[0].unsigned_abs() != leaf.len() / rows {
        let expected = dense_strides(shape).to_vec();
        differences.push(Difference::MemoryOrder { path: path(), expected, found: leaf.strides().to_vec() });
    }
    differences
}

impl Rows {
    pub(crate) fn clear(&mut self) {
        self.leaves.clear();
    }

    pub(crate) fn cut(&mut self, structure: &Structure, active: &[bool]) {
        let Rows { leaves, of_leaf, chunks, .. } = self;
        if !leaves.is_empty() {
            chunks.cut(structure, active, |leaf| leaves.contains(&leaf).then(|| &of_leaf[leaf].rows[..]));
        }
    }

    /// Adds the rows of a leaf, which must fit, and returns their sums.
    pub(crate) fn add_leaf(
        &mut self,
        leaf: usize,
        spec: &LeafSpec,
        values: &LeafParts,
        indices: &[usize],
    ) -> TableLeaf {
        self.leaves.push(leaf);
        self.of_leaf.resize_with(self.of_leaf.len().max(leaf + 1), LeafRows::default);
        self.order.clear();
        self.order.extend(indices.iter().copied().zip(0..));
        // Equal rows stay in order of position.
        self.order.sort_unstable();
        match spec.dtype().compute() {
            DType::F64 => self.of_leaf[leaf].sum_duplicates::<f64>(spec, values, &self.order),
            _ => self.of_leaf[leaf].sum_duplicates::<f32>(spec, values, &self.order),
        }
    }
}

impl LeafRows {
    fn sum_duplicates<C: Real>(&mut self, spec: &LeafSpec, values: &LeafParts, order: &[(usize, usize)]) -> TableLeaf {
        self.columns = spec.len() / spec.shape()[0].max(1);
        self.rows.clear();
        // The first axis has the largest stride in both, so rows have the leaf's memory order.
        let from = TableLeaf::of(values, spec.strides());
        let needed = order.len() * self.columns;
        if self.sums.as_ref().is_none_or(|sums| sums.len() < needed || sums.dtype() != C::DTYPE) {
            self.sums = Some(Buffer::zeros(C::DTYPE, needed.next_power_of_two()));
        }
        let room = self.sums.as_mut().and_then(|sums| sums.get_mut::<C>()).unwrap_or_default();
        for &(index, place) in order {
            let (done, free) = room.split_at_mut(self.rows.len() * self.columns);
            let row = &mut free[..self.columns];
            // SAFETY: the values are borrowed from the tree during its walk; `differences` checked that each index has
            // a row of them.
            unsafe {
                read_in_order(&from, &values.shape, spec.strides(), current_simd_level(), place * self.columns, row)
            };
            if self.rows.last() == Some(&index) {
                let sum = done.rchunks_mut(self.columns.max(1)).next().unwrap_or_default();
                sum.iter_mut().zip(row).for_each(|(sum, x)| *sum += *x);
            } else {
                self.rows.push(index);
            }
        }
        TableLeaf::own(self.sums.as_ref().map_or(RawSlice::empty(C::DTYPE), Buffer::raw))
    }

    /// Returns the indices, ascending, and the rows' updates, stored in place of the sums.
    pub(crate) fn updates<C: Real>(&mut self) -> (&[usize], &mut [C]) {
        let stored = self.sums.as_mut().and_then(|sums| sums.get_mut::<C>()).unwrap_or_default();
        (&self.rows, &mut stored[..self.rows.len() * self.columns])
    }
}
