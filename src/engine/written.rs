//! Finished updates, written to where they go: to leaves of any type and layout.
#![allow(unsafe_code, reason = "stretches of raw leaves; see `memory`")]

#[cfg(feature = "half")]
use super::halves::Parameters;
use super::isa::{Isa, Job, dispatch};
use super::leaf::TableLeaf;
use super::messages::Layout;
#[cfg(feature = "half")]
use crate::element::DType;
use crate::element::{Element, Real, convert, with_dtype};
use crate::memory::{Buffer, RawBytes, RawSlice, RawStrided};
use crate::state::Moments;
use crate::tree::{Cursor, LeafSpec, add_update};

/// Where the last pass puts the updates.
#[derive(Clone, Copy)]
pub(crate) enum Sink<'a> {
    /// They are added to the parameters.
    Params,
    /// They are written, rounded to the parameters' types.
    Updates(&'a [Buffer]),
    /// They are written, rounded to the types of these arrays.
    Arrays(&'a Moments),
    /// They are brought to messages to other machines.
    Messages(&'a Layout, &'a [RawBytes]),
    /// They are written in place of the gradients, which are lent to be written and of the parameters' types.
    Gradients,
}

/// Updates to add to parameters.
struct Add<'a, C> {
    u: &'a [C],
    p: &'a mut [C],
}

impl<C: Real> Job for Add<'_, C> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        add_slice(self.u, self.p);
    }
}

/// A function of its own, since arguments are known not to overlap.
#[inline(always)]
fn add_slice<C: Real>(u: &[C], p: &mut [C]) {
    let u = &u[..p.len()];
    for i in 0..p.len() {
        p[i] = add_update(p[i], u[i]);
    }
}

/// The update is rounded to the parameter's type before it is added, as it is when it is stored and applied later.
#[inline(always)]
pub(crate) fn add_rounded<C: Real, P: Element>(p: P, u: C) -> P {
    convert(add_update(convert::<P, C>(p), convert::<P, C>(convert::<C, P>(u))))
}

/// Writes finished updates to a stretch of a leaf of any type and layout.
///
/// # Safety
///
/// The leaf is lent for the step to be written, and this stretch is the caller's alone.
pub(super) unsafe fn store_stretch<C: Real>(leaf: &TableLeaf, spec: &LeafSpec, isa: Isa, start: usize, u: &[C]) {
    let Some(strided) = &leaf.strided else {
        // SAFETY: by the caller's promise.
        return unsafe { super::convert::store(isa, leaf.data, start, u) };
    };
    with_dtype!(leaf.data.dtype(), T => {
        let view = RawStrided::new(leaf.data, strided.extent);
        let mut u = u.iter();
        for run in Cursor::new(spec.shape(), spec.strides(), &strided.strides, start).take(u.len()) {
            // SAFETY: by the caller's promise.
            unsafe { view.write::<T>(run, || u.next().map_or_else(T::default, |u| convert::<C, T>(*u))) };
        }
    });
}

/// Adds finished updates to a stretch of a parameter of any type and layout.
///
/// # Safety
///
/// The leaf is lent for the step to be written, and this stretch is the caller's alone.
pub(super) unsafe fn add_stretch<C: Real>(leaf: &TableLeaf, spec: &LeafSpec, isa: Isa, start: usize, u: &[C]) {
    let Some(strided) = &leaf.strided else {
        // SAFETY: by the caller's promise.
        return unsafe { add_dense(leaf.data, isa, start, u) };
    };
    with_dtype!(leaf.data.dtype(), P => {
        let view = RawStrided::new(leaf.data, strided.extent);
        let mut u = u.iter();
        for run in Cursor::new(spec.shape(), spec.strides(), &strided.strides, start).take(u.len()) {
            // SAFETY: by the caller's promise.
            unsafe { view.update::<P>(run, |p| u.next().map_or(p, |u| add_rounded(p, *u))) };
        }
    });
}

/// As [`add_stretch`] where elements follow one another.
///
/// # Safety
///
/// As for [`add_stretch`].
unsafe fn add_dense<C: Real>(leaf: RawSlice, isa: Isa, start: usize, u: &[C]) {
    match leaf.dtype() {
        #[cfg(feature = "half")]
        // SAFETY: by the caller's promise.
        DType::Bf16 => C::split(Parameters::<half::bf16>(isa, unsafe { leaf.slice_mut(start, u.len()) }), u),
        #[cfg(feature = "half")]
        // SAFETY: as above.
        DType::F16 => C::split(Parameters::<half::f16>(isa, unsafe { leaf.slice_mut(start, u.len()) }), u),
        // SAFETY: as above. Arithmetic on other leaves is in their own type.
        _ => dispatch(isa, Add { u, p: unsafe { leaf.slice_mut::<C>(start, u.len()) } }),
    }
}
