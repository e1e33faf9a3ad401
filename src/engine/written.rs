//! Finished updates, written to where they go: to leaves of any type and layout.
#![allow(unsafe_code, reason = "stretches of raw leaves; see `memory`")]

use super::ahead::prefetch_after;
use super::factors::Factors;
#[cfg(feature = "half")]
use super::halves::Parameters;
use super::isa::{Isa, Job, dispatch};
use super::messages::Layout;
use super::table::TableLeaf;
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

/// What becomes of a parameter of the type that arithmetic is done in. A method, not a closure, so that it takes on the
/// instruction set of its caller.
trait Sum<C>: Copy {
    /// Must be `#[inline(always)]`.
    fn of(self, p: C, u: C) -> C;
}

/// It and its update.
#[derive(Clone, Copy)]
struct Plain;

impl<C: Real> Sum<C> for Plain {
    #[inline(always)]
    fn of(self, p: C, u: C) -> C {
        add_update(p, u)
    }
}

/// It and its update times some factors.
impl<C: Real> Sum<C> for Factors<C> {
    #[inline(always)]
    fn of(self, p: C, u: C) -> C {
        add_update(p, Factors::of(self, u))
    }
}

/// Updates to add to parameters.
struct Add<'a, C, S> {
    sum: S,
    u: &'a [C],
    p: &'a mut [C],
}

/// Elements of which the memory is asked for at once, on processors where loops outside a chain ask.
const ASKED: usize = 64;

impl<C: Real, S: Sum<C>> Job for Add<'_, C, S> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        add_slice(self.sum, self.u, self.p);
    }
}

/// A function of its own, since arguments are known not to overlap.
#[inline(always)]
fn add_slice<C: Real, S: Sum<C>>(sum: S, u: &[C], p: &mut [C]) {
    let (u, u_left) = u[..p.len()].as_chunks::<ASKED>();
    let (p, p_left) = p.as_chunks_mut::<ASKED>();
    for b in 0..p.len() {
        prefetch_after(&p[b]);
        for i in 0..ASKED {
            p[b][i] = sum.of(p[b][i], u[b][i]);
        }
    }
    for i in 0..p_left.len() {
        p_left[i] = sum.of(p_left[i], u_left[i]);
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

/// Multiplies updates by factors and adds them to a stretch of a parameter of their own type.
///
/// # Safety
///
/// As for [`add_stretch`].
pub(super) unsafe fn add_direct<C: Real>(params: RawSlice, isa: Isa, start: usize, u: &[C], factors: Factors<C>) {
    // SAFETY: by the caller's promise.
    let p = unsafe { params.slice_mut::<C>(start, u.len()) };
    match factors.is_none() {
        true => dispatch(isa, Add { sum: Plain, u, p }),
        false => dispatch(isa, Add { sum: factors, u, p }),
    }
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
        _ => dispatch(isa, Add { sum: Plain, u, p: unsafe { leaf.slice_mut::<C>(start, u.len()) } }),
    }
}
