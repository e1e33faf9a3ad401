//! Leaves of a tree for the time of one step, read and written whatever their types and layouts.
#![allow(unsafe_code, reason = "raw leaves; see `memory`")]

use core::ops::Range;

use super::convert::load;
use super::isa::{Isa, current_isa};
use crate::element::{DType, Real, convert, with_dtype};
use crate::memory::{RawSlice, RawStrided};
use crate::numeric::split::{FEW, each_of, worth_sharing};
use crate::state::Moments;
use crate::tree::{Cursor, LeafParts, LeafSpec, Strided, Structure};

/// Where a leaf's elements are, for the time of one step.
#[derive(Clone, Debug)]
pub(crate) struct TableLeaf {
    pub(crate) data: RawSlice,
    /// The strides, unless the elements lie as the state does; then no slice of `data` can be taken.
    pub(crate) strided: Option<Strided>,
    /// Whether it is the engine's own, so that updates may be stored in its place: of gradients those of rows.
    pub(crate) own: bool,
}

impl TableLeaf {
    pub(super) const NOWHERE: TableLeaf = TableLeaf { data: RawSlice::NOWHERE, strided: None, own: false };

    /// An array that lies as the state does.
    pub(crate) fn dense(data: RawSlice) -> TableLeaf {
        TableLeaf { data, strided: None, own: false }
    }

    /// A leaf, beside state that lies in this order.
    pub(crate) fn of(parts: &LeafParts, order: &[isize]) -> TableLeaf {
        let mut leaf = TableLeaf::dense(parts.data);
        leaf.lies_by(parts.strides_unless(order));
        leaf
    }

    /// Notes the strides of a leaf that does not lie as the state does.
    pub(super) fn lies_by(&mut self, strided: Option<Strided>) {
        if strided.is_some() {
            (self.data, self.strided) = (self.data.scattered(), strided);
        }
    }

    /// Stands for a leaf that is not there.
    pub(crate) fn none(dtype: DType) -> TableLeaf {
        TableLeaf::dense(RawSlice::empty(dtype))
    }

    /// Returns true if its elements lie as the state does, and are of this type.
    #[inline]
    pub(crate) fn lies(&self, dtype: DType) -> bool {
        self.strided.is_none() && self.data.dtype() == dtype
    }

    /// An array of the engine's own.
    pub(crate) fn own(data: RawSlice) -> TableLeaf {
        TableLeaf { own: true, ..TableLeaf::dense(data) }
    }
}

/// The leaves of one tree. The allocation is kept from step to step, the pointers are not.
pub(crate) type Table = Vec<TableLeaf>;

/// Returns true if a leaf is among these; false if there are no entries.
pub(crate) fn is_among(leaves: &[bool], leaf: usize) -> bool {
    leaves.get(leaf).is_some_and(|is| *is)
}

/// Fills a table with arrays that lie as the state does, which must outlive its use. A leaf that has no array is the
/// one in `others`; if there are none, it has no elements.
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

/// Fills a table with gradients that lie as the state does.
pub(crate) fn moments(gradient: &Moments, table: &mut Table) {
    table.clear();
    table.extend((0..gradient.len()).filter_map(|leaf| Some(TableLeaf::dense(gradient.raw(leaf)?))));
}

/// Copies a whole leaf, of any type and layout, into the compute type and the state's order.
pub(crate) fn read_leaf<C: Real>(leaf: &TableLeaf, spec: &LeafSpec, to: Option<&mut [C]>) {
    read_range(leaf, spec, 0..spec.len(), to);
}

/// The same of the elements that are worked on here.
pub(crate) fn read_here<C: Real>(leaf: &TableLeaf, spec: &LeafSpec, to: Option<&mut [C]>) {
    read_range(leaf, spec, spec.here(), to);
}

fn read_range<C: Real>(leaf: &TableLeaf, spec: &LeafSpec, range: Range<usize>, to: Option<&mut [C]>) {
    let Some(to) = to else { return };
    assert_eq!(to.len(), range.len(), "room for the elements of the leaf `{spec}`, no more and no less");
    let one = |(at, to): &mut (usize, &mut [C])| {
        // SAFETY: the engine lends the leaf for the step or for `init`, and no pass is running; who calls this has
        // asked whether there are so many elements.
        unsafe {
            read_stretch(leaf, spec, current_isa(), *at, to);
        }
    };
    if !worth_sharing(to.len(), FEW) {
        return one(&mut (range.start, to));
    }
    let mut parts: Vec<_> = (range.start..).step_by(READ).zip(to.chunks_mut(READ)).collect();
    each_of(&mut parts, &one);
}

/// Elements that one thread reads at a time.
const READ: usize = 1 << 16;

/// Copies a stretch of a leaf of any type and layout into the compute type and the state's order, and asks for what is
/// read later.
///
/// # Safety
///
/// The leaf is lent for the step, nobody writes to this stretch meanwhile, and it has as many elements from `start` on.
pub(crate) unsafe fn read_stretch<C: Real>(leaf: &TableLeaf, spec: &LeafSpec, isa: Isa, start: usize, to: &mut [C]) {
    match leaf.strided {
        // SAFETY: by the caller's promise.
        None => unsafe { load(isa, leaf.data, start, to) },
        // SAFETY: as above.
        Some(_) => unsafe { read_in_order(leaf, spec.shape(), spec.strides(), isa, start, to) },
    }
}

/// Copies a stretch of an array of any type and layout into the compute type, in the order of a dense one with these
/// strides.
///
/// # Safety
///
/// As [`read_stretch`].
pub(crate) unsafe fn read_in_order<C: Real>(
    leaf: &TableLeaf,
    shape: &[usize],
    order: &[isize],
    isa: Isa,
    start: usize,
    to: &mut [C],
) {
    let Some(strided) = &leaf.strided else {
        // SAFETY: by the caller's promise.
        return unsafe { load(isa, leaf.data, start, to) };
    };
    let view = RawStrided::new(leaf.data, strided.extent);
    let n = to.len();
    let mut to = to.iter_mut();
    with_dtype!(leaf.data.dtype(), T => {
        for run in Cursor::new(shape, order, &strided.strides, start).take(n) {
            // SAFETY: by the caller's promise.
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

/// Copies an array in the state's order into a leaf of any type and layout.
pub(crate) fn write_leaf<C: Real>(leaf: &TableLeaf, spec: &LeafSpec, from: &[C]) {
    with_dtype!(leaf.data.dtype(), T => match &leaf.strided {
        None => {
            // SAFETY: the leaf is borrowed mutably by the caller, who holds the tree.
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
