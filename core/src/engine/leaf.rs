#![allow(unsafe_code, reason = "raw leaves; see `memory`")]

use core::ops::Range;

use super::convert::load;
use super::simd::{SimdLevel, current_simd_level};
use crate::element::{DType, Real, convert, with_dtype};
use crate::memory::{RawSlice, RawStrided};
use crate::numeric::split::{PARALLEL_THRESHOLD, is_parallel, parallel_for_each};
use crate::state::Moments;
use crate::tree::{Cursor, LeafParts, LeafSpec, Strided, Structure};

#[derive(Clone, Debug)]
pub(crate) struct TableLeaf {
    pub(crate) data: RawSlice,
    /// The strides, if not in the state's memory order; then no slice of `data` may be made.
    pub(crate) strided: Option<Strided>,
    /// True if the engine owns the memory and may store updates there: gradients of row-sparse leaves.
    pub(crate) own: bool,
}

impl TableLeaf {
    pub(super) const EMPTY: TableLeaf = TableLeaf { data: RawSlice::EMPTY, strided: None, own: false };

    pub(crate) fn dense(data: RawSlice) -> TableLeaf {
        TableLeaf { data, strided: None, own: false }
    }

    /// Returns a leaf whose state has strides `order`.
    pub(crate) fn of(parts: &LeafParts, order: &[isize]) -> TableLeaf {
        let mut leaf = TableLeaf::dense(parts.data);
        leaf.set_strided(parts.strides_unless(order));
        leaf
    }

    pub(super) fn set_strided(&mut self, strided: Option<Strided>) {
        if strided.is_some() {
            (self.data, self.strided) = (self.data.scattered(), strided);
        }
    }

    pub(crate) fn none(dtype: DType) -> TableLeaf {
        TableLeaf::dense(RawSlice::empty(dtype))
    }

    /// Returns true for this dtype in the state's memory order.
    #[inline]
    pub(crate) fn is_in_memory_order(&self, dtype: DType) -> bool {
        self.strided.is_none() && self.data.dtype() == dtype
    }

    pub(crate) fn own(data: RawSlice) -> TableLeaf {
        TableLeaf { own: true, ..TableLeaf::dense(data) }
    }
}

/// The leaves of one tree. Steps reuse the allocation, not the pointers.
pub(crate) type Table = Vec<TableLeaf>;

/// Returns a leaf's flag; false if `leaves` is empty.
pub(crate) fn is_among(leaves: &[bool], leaf: usize) -> bool {
    leaves.get(leaf).is_some_and(|is| *is)
}

/// Fills a table with arrays in the state's memory order, which must outlive it. Leaves without an array take their
/// entry in `others`, or no elements.
pub(crate) fn arrays(arrays: &Moments, structure: &Structure, others: &[TableLeaf], table: &mut Table) {
    table.clear();
    table.extend(structure.leaves().iter().enumerate().map(|(leaf, spec)| {
        match (arrays.raw(leaf), others.get(leaf)) {
            (Some(data), _) => TableLeaf::dense(data),
            (None, Some(other)) => other.clone(),
            (None, None) => TableLeaf::none(spec.dtype().compute()),
        }
    }));
}

pub(crate) fn moments(gradient: &Moments, table: &mut Table) {
    table.clear();
    table.extend((0..gradient.len()).filter_map(|leaf| Some(TableLeaf::dense(gradient.raw(leaf)?))));
}

/// Copies a leaf of any dtype and layout to the compute type and the state's memory order.
pub(crate) fn read_leaf<C: Real>(leaf: &TableLeaf, spec: &LeafSpec, to: Option<&mut [C]>) {
    read_range(leaf, spec, 0..spec.len(), to);
}

/// As [`read_leaf`], for the elements of this process.
pub(crate) fn read_here<C: Real>(leaf: &TableLeaf, spec: &LeafSpec, to: Option<&mut [C]>) {
    read_range(leaf, spec, spec.here(), to);
}

/// Not inlined: shared by all chains.
#[inline(never)]
fn read_range<C: Real>(leaf: &TableLeaf, spec: &LeafSpec, range: Range<usize>, to: Option<&mut [C]>) {
    let Some(to) = to else { return };
    assert_eq!(to.len(), range.len(), "the buffer must have the length of the range of leaf `{spec}`");
    let one = |(at, to): &mut (usize, &mut [C])| {
        // SAFETY: the engine borrows the leaf for the step or for `init`, and no pass is running. Callers have checked
        // that the leaf holds the elements of `range`, and `to` has as many.
        unsafe {
            read_chunk(leaf, spec, current_simd_level(), *at, to);
        }
    };
    if !is_parallel(to.len(), PARALLEL_THRESHOLD) {
        return one(&mut (range.start, to));
    }
    let mut parts: Vec<_> = (range.start..).step_by(READ).zip(to.chunks_mut(READ)).collect();
    parallel_for_each(&mut parts, &one);
}

const READ: usize = 1 << 16;

/// As [`read_leaf`], for a range.
///
/// # Safety
///
/// The leaf is borrowed for the step, has `to.len()` elements from `start` on, and is not written meanwhile.
pub(crate) unsafe fn read_chunk<C: Real>(
    leaf: &TableLeaf,
    spec: &LeafSpec,
    simd: SimdLevel,
    start: usize,
    to: &mut [C],
) {
    match leaf.strided {
        // SAFETY: as the caller guarantees.
        None => unsafe { load(simd, leaf.data, start, to) },
        // SAFETY: as above.
        Some(_) => unsafe { read_in_order(leaf, spec.shape(), spec.strides(), simd, start, to) },
    }
}

/// As [`read_chunk`], in the order of a dense array with strides `order`.
///
/// # Safety
///
/// As [`read_chunk`].
pub(crate) unsafe fn read_in_order<C: Real>(
    leaf: &TableLeaf,
    shape: &[usize],
    order: &[isize],
    simd: SimdLevel,
    start: usize,
    to: &mut [C],
) {
    let Some(strided) = &leaf.strided else {
        // SAFETY: as the caller guarantees.
        return unsafe { load(simd, leaf.data, start, to) };
    };
    let view = RawStrided::new(leaf.data, strided.extent);
    let n = to.len();
    let mut to = to.iter_mut();
    with_dtype!(leaf.data.dtype(), T => {
        for run in Cursor::new(shape, order, &strided.strides, start).take(n) {
            // SAFETY: as the caller guarantees.
            unsafe {
                view.read::<T>(run, |x| {
                    if let Some(to) = to.next() {
                        *to = convert(x);
                    }
                });
            }
        }
    });
}

/// Writes an array in the state's memory order to a leaf of any dtype and layout.
pub(crate) fn write_leaf<C: Real>(leaf: &TableLeaf, spec: &LeafSpec, from: &[C]) {
    with_dtype!(leaf.data.dtype(), T => match &leaf.strided {
        None => {
            // SAFETY: the caller borrows the tree of this leaf mutably, and `leaf.data` has `from.len()` elements.
            let to = unsafe { leaf.data.slice_mut::<T>(0, from.len()) };
            to.iter_mut().zip(from).for_each(|(to, from)| *to = convert::<C, T>(*from));
        }
        Some(strided) => {
            let view = RawStrided::new(leaf.data, strided.extent);
            let mut from = from.iter();
            for run in Cursor::new(spec.shape(), spec.strides(), &strided.strides, 0).take(spec.len()) {
                // SAFETY: as above.
                unsafe { view.write::<T>(run, || from.next().map_or(T::default(), |x| convert::<C, T>(*x))) };
            }
        }
    });
}
