//! Moving stretches of a leaf into the compute type and back.
#![allow(unsafe_code, reason = "stretches of raw slices; see `memory`")]

use super::isa::{Isa, Job, dispatch};
use crate::element::{Element, Real, convert, with_dtype};
use crate::memory::RawSlice;

/// Numbers of one type as those of another.
pub(crate) struct Convert<'a, A, B> {
    pub(crate) from: &'a [A],
    pub(crate) to: &'a mut [B],
}

impl<A: Element, B: Element> Job for Convert<'_, A, B> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        convert_slice(self.from, self.to);
    }
}

#[inline(always)]
fn convert_slice<A: Element, B: Element>(from: &[A], to: &mut [B]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = convert(*from);
    }
}

/// Reads a stretch.
///
/// # Safety
///
/// The memory is alive and not written to meanwhile.
pub(crate) unsafe fn load<C: Real>(isa: Isa, raw: RawSlice, start: usize, to: &mut [C]) {
    // SAFETY: by the caller's promise.
    with_dtype!(raw.dtype(), T => dispatch(isa, Convert { from: unsafe { raw.slice::<T>(start, to.len()) }, to }));
}

/// Writes a stretch.
///
/// # Safety
///
/// The memory is alive and exclusively the caller's.
pub(crate) unsafe fn store<C: Real>(isa: Isa, raw: RawSlice, start: usize, from: &[C]) {
    // SAFETY: by the caller's promise.
    with_dtype!(raw.dtype(), T => dispatch(isa, Convert { from, to: unsafe { raw.slice_mut::<T>(start, from.len()) } }));
}
