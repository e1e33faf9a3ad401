#![allow(unsafe_code, reason = "slices of raw leaves; see `memory`")]

use super::kernel::{ADD, Body, run_mixed};
use super::leaf::TableLeaf;
use super::limits::MAX_SLOTS;
use super::prefetch::DISTANCE;
use super::ranks::Layout;
use super::simd::SimdLevel;
use super::stored::{Arrays, is_stored};
use super::sums::MAX_SUMS;
use crate::element::{Contribution, DType, Element, Real, convert, with_dtype};
use crate::memory::{Buffer, RawBytes, RawSlice, RawStrided};
use crate::state::Moments;
use crate::tree::{Cursor, LeafSpec, add_update};

#[derive(Clone, Copy)]
pub enum Sink<'a> {
    Params,
    /// Stores the updates, rounded to the parameters' dtypes.
    Updates(&'a [Buffer]),
    /// Stores the updates, rounded to these arrays' dtypes.
    Arrays(&'a Moments),
    Messages(&'a Layout, &'a [RawBytes]),
    /// Overwrites the gradients, which have the parameters' dtypes.
    Gradients,
}

enum Identity {}

impl<C: Real> Body<C> for Identity {
    type Kernel = ();
    const ARRAYS: usize = 0;
    const READS: [bool; MAX_SLOTS] = [false; MAX_SLOTS];
    const WRITES: [bool; MAX_SLOTS] = [false; MAX_SLOTS];
    const READS_PARAMS: bool = false;

    #[inline(always)]
    fn apply((): &(), _: (Option<DType>, bool), _: &mut [C], u: C, _: C, _: &mut [Contribution<C>; MAX_SUMS]) -> C {
        u
    }
}

/// Adds an update, first rounded to the parameter's dtype as if stored.
#[inline(always)]
pub fn add_rounded<C: Real, P: Element>(p: P, u: C) -> P {
    convert(add_update(convert::<P, C>(p), convert::<P, C>(convert::<C, P>(u))))
}

/// Stores updates in a range of a leaf of any dtype and layout.
///
/// # Safety
///
/// The leaf is borrowed to be written, and only the caller accesses this range.
pub(super) unsafe fn store_chunk<C: Real>(leaf: &TableLeaf, spec: &LeafSpec, simd: SimdLevel, start: usize, u: &[C]) {
    let Some(strided) = &leaf.strided else {
        // SAFETY: as the caller guarantees.
        return unsafe { super::convert::store(simd, leaf.data, start, u) };
    };
    with_dtype!(leaf.data.dtype(), T => {
        let view = RawStrided::new(leaf.data, strided.extent);
        let mut u = u.iter();
        for run in Cursor::new(spec.shape(), spec.strides(), &strided.strides, start).take(u.len()) {
            // SAFETY: as the caller guarantees.
            unsafe { view.write::<T>(run, || u.next().map_or_else(T::default, |u| convert::<C, T>(*u))) };
        }
    });
}

/// Adds updates to a range of a leaf of any dtype and layout.
///
/// # Safety
///
/// As [`store_chunk`].
pub(super) unsafe fn add_chunk<C: Real>(leaf: &TableLeaf, spec: &LeafSpec, simd: SimdLevel, start: usize, u: &[C]) {
    let Some(strided) = &leaf.strided else {
        // SAFETY: as the caller guarantees.
        return unsafe { add_dense(leaf.data, simd, start, u) };
    };
    with_dtype!(leaf.data.dtype(), P => {
        let view = RawStrided::new(leaf.data, strided.extent);
        let mut u = u.iter();
        for run in Cursor::new(spec.shape(), spec.strides(), &strided.strides, start).take(u.len()) {
            // SAFETY: as the caller guarantees.
            unsafe { view.update::<P>(run, |p| u.next().map_or(p, |u| add_rounded(p, *u))) };
        }
    });
}

/// As [`add_chunk`], for a contiguous leaf.
///
/// # Safety
///
/// As for [`add_chunk`].
unsafe fn add_dense<C: Real>(leaf: RawSlice, simd: SimdLevel, start: usize, u: &[C]) {
    if is_stored::<C>(leaf.dtype(), simd) {
        let from = RawSlice::of(u);
        let ahead = from.end_of(0, 0) + DISTANCE;
        // SAFETY: as the caller guarantees; `u` is borrowed, so that it does not overlap the leaf.
        let arrays =
            unsafe { Arrays::new((start, u.len()), (from, 0, ahead), (RawSlice::EMPTY, leaf), &[None; MAX_SLOTS]) };
        run_mixed::<Identity, C, ADD>(simd, &(), &arrays);
    } else {
        // SAFETY: as above.
        with_dtype!(leaf.dtype(), P => for (p, u) in unsafe { leaf.slice_mut::<P>(start, u.len()) }.iter_mut().zip(u) {
            *p = add_rounded(*p, *u);
        });
    }
}
