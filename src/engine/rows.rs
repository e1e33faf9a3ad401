//! Gradients of some rows of a leaf: whether they fit it, each row's sum, and where the sums are kept.
#![allow(unsafe_code, reason = "rows of raw leaves of any type and layout; see `memory`")]

use super::isa::current_isa;
use super::leaf::{TableLeaf, read_in_order};
use super::pieces::Pieces;
use crate::element::{DType, Real};
use crate::memory::{Buffer, RawSlice};
use crate::tree::{Difference, LeafParts, LeafSpec, Structure, dense_strides};

/// The rows that the leaves of a step have gradients for. What is allocated is kept from step to step.
#[derive(Default)]
pub(crate) struct Rows {
    /// The leaves that have rows in this step.
    pub(crate) leaves: Vec<usize>,
    /// Rows by leaf: of the leaves that do not have any in this step they mean nothing.
    pub(crate) of_leaf: Vec<LeafRows>,
    /// How the work of this step is cut.
    pub(crate) pieces: Pieces,
    /// A leaf's indices in order, each with its place.
    order: Vec<(usize, usize)>,
}

/// The rows of one leaf.
#[derive(Default)]
pub(crate) struct LeafRows {
    /// Which, ascending.
    pub(crate) rows: Vec<usize>,
    /// The sums of their gradients, one after another, in memory that may be longer.
    sums: Option<Buffer>,
    /// Elements of a row.
    columns: usize,
}

/// How rows differ from those that a leaf can have.
pub(crate) fn misfits(leaf: &LeafSpec, values: &LeafParts, indices: &[usize]) -> Vec<Difference> {
    let (path, [found, shape]) = (|| leaf.path().into(), [&values.shape[..], leaf.shape()]);
    let Some((&rows, columns)) = shape.split_first() else {
        // A leaf without axes has no rows.
        return vec![Difference::Row { path: path(), rows: 0, found: indices.first().copied().unwrap_or(0) }];
    };
    let mut misfits = Vec::new();
    if found.split_first() != Some((&indices.len(), columns)) {
        let expected = [&[indices.len()], columns].concat();
        misfits.push(Difference::Rows { path: path(), expected, found: found.into() });
    }
    if let Some(&found) = indices.iter().find(|index| **index >= rows) {
        misfits.push(Difference::Row { path: path(), rows, found });
    }
    if rows > 1 && leaf.len() > 0 && leaf.strides()[0].unsigned_abs() != leaf.len() / rows {
        let expected = dense_strides(shape).to_vec();
        misfits.push(Difference::MemoryOrder { path: path(), expected, found: leaf.strides().to_vec() });
    }
    misfits
}

impl Rows {
    /// Forgets the rows of the last step.
    pub(crate) fn clear(&mut self) {
        self.leaves.clear();
    }

    /// Cuts the work of a step in which leaves have rows.
    pub(crate) fn cut(&mut self, structure: &Structure, active: &[bool]) {
        let Rows { leaves, of_leaf, pieces, .. } = self;
        if !leaves.is_empty() {
            pieces.cut(structure, active, |leaf| leaves.contains(&leaf).then(|| &of_leaf[leaf].rows[..]));
        }
    }

    /// Adds up the rows of a leaf that they fit, and says where the sums are.
    pub(crate) fn take(&mut self, leaf: usize, spec: &LeafSpec, values: &LeafParts, indices: &[usize]) -> TableLeaf {
        self.leaves.push(leaf);
        self.of_leaf.resize_with(self.of_leaf.len().max(leaf + 1), LeafRows::default);
        self.order.clear();
        self.order.extend(indices.iter().copied().zip(0..));
        // Those of a row stay in the order in which they came.
        self.order.sort_unstable();
        match spec.dtype().compute() {
            DType::F64 => self.of_leaf[leaf].add_up::<f64>(spec, values, &self.order),
            _ => self.of_leaf[leaf].add_up::<f32>(spec, values, &self.order),
        }
    }
}

impl LeafRows {
    fn add_up<C: Real>(&mut self, spec: &LeafSpec, values: &LeafParts, order: &[(usize, usize)]) -> TableLeaf {
        self.columns = spec.len() / spec.shape()[0].max(1);
        self.rows.clear();
        // The first axis is the slowest of both, so that rows lie in these as they do in the leaf.
        let from = TableLeaf::of(values, spec.strides());
        let needed = order.len() * self.columns;
        if self.sums.as_ref().is_none_or(|sums| sums.len() < needed || sums.dtype() != C::DTYPE) {
            self.sums = Some(Buffer::zeros(C::DTYPE, needed.next_power_of_two()));
        }
        let room = self.sums.as_mut().and_then(|sums| sums.get_mut::<C>()).unwrap_or_default();
        for &(index, place) in order {
            let (done, free) = room.split_at_mut(self.rows.len() * self.columns);
            let row = &mut free[..self.columns];
            // SAFETY: the values are borrowed from the tree that is being walked, and have a row for each index.
            unsafe { read_in_order(&from, &values.shape, spec.strides(), current_isa(), place * self.columns, row) };
            if self.rows.last() == Some(&index) {
                let sum = done.rchunks_mut(self.columns.max(1)).next().unwrap_or_default();
                sum.iter_mut().zip(row).for_each(|(sum, x)| *sum += *x);
            } else {
                self.rows.push(index);
            }
        }
        TableLeaf::own(self.sums.as_ref().map_or(RawSlice::empty(C::DTYPE), Buffer::raw))
    }

    /// Which rows, ascending, and their updates, which are stored in the place of the sums.
    pub(crate) fn updates<C: Real>(&mut self) -> (&[usize], &mut [C]) {
        let stored = self.sums.as_mut().and_then(|sums| sums.get_mut::<C>()).unwrap_or_default();
        (&self.rows, &mut stored[..self.rows.len() * self.columns])
    }
}
