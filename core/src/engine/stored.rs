//! Arrays as loops access them: a block is loaded in the compute type and stored back.
#![allow(unsafe_code, reason = "arrays are split at the chunks of their leaves; see `memory`")]

use core::marker::PhantomData;

#[cfg(feature = "half")]
use half::{bf16, f16};

#[cfg(feature = "half")]
use super::half_blocks::HalfBlocks;
use super::limits::{BLOCK, MAX_SLOTS};
use super::prefetch::{prefetch_after, prefetch_beside, prefetch_to_read};
use super::simd::{SimdLevel, SimdType};
use super::slots::RawSlots;
#[cfg(feature = "half")]
use crate::element::convert;
use crate::element::{DType, Real};
use crate::memory::RawSlice;
#[cfg(feature = "half")]
use crate::numeric::half_floats::are_converted;
use crate::tree::add_update;

/// State arrays in the compute type; unused entries are empty.
pub(crate) type Slots<'a, C> = [&'a mut [C]; MAX_SLOTS];

#[inline(always)]
pub(crate) fn no_slots<'a, C>() -> Slots<'a, C> {
    [&mut [], &mut [], &mut [], &mut [], &mut [], &mut [], &mut [], &mut []]
}

/// Returns true if loops of this SIMD level access arrays of this dtype directly.
pub(super) fn is_stored<C: Real>(dtype: DType, simd: SimdLevel) -> bool {
    match dtype {
        dtype if dtype == C::DTYPE => true,
        #[cfg(feature = "half")]
        DType::Bf16 => is_single::<C>(),
        #[cfg(feature = "half")]
        DType::F16 => is_single::<C>() && are_converted(simd),
        _ => {
            let _ = simd;
            false
        }
    }
}

/// Returns true if loops in `C` access 16-bit leaves directly.
pub(super) const fn is_single<C: Real>() -> bool {
    cfg!(feature = "half") && matches!(C::DTYPE, DType::F32)
}

/// The arrays of a loop: `len` elements of each, from index `start`, those of the updates from `from_start`. A loop
/// that adds updates to parameters writes `to` and ignores `p`. Arrays that the body does not access may be missing.
pub(crate) struct Arrays<'a> {
    len: usize,
    start: usize,
    from: RawSlice,
    from_start: usize,
    /// The address to prefetch with the first updates.
    prefetch_address: usize,
    p: RawSlice,
    to: RawSlice,
    slots: &'a RawSlots,
    lent: PhantomData<&'a mut ()>,
}

impl<'a> Arrays<'a> {
    /// Lends `len` elements of each array, from index `start`, those of the updates from `from_start`.
    ///
    /// # Safety
    ///
    /// While this lives, all arrays are alive; nothing else reads or writes these elements of `to` and of the state
    /// arrays, and nothing writes these elements of the others. No two of `from`, `to` and the state arrays overlap,
    /// except that `from` may be `to`: a loop reads a block of all arrays before it writes one.
    pub(super) unsafe fn new(
        (start, len): (usize, usize),
        (from, from_start, prefetch_address): (RawSlice, usize, usize),
        (p, to): (RawSlice, RawSlice),
        slots: &'a RawSlots,
    ) -> Arrays<'a> {
        Arrays { len, start, from, from_start, prefetch_address, p, to, slots, lent: PhantomData }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn prefetch_address(&self) -> usize {
        self.prefetch_address
    }

    /// Returns true if all arrays have the compute type; in a loop that `adds`, the parameters are `to`.
    pub(super) fn is_native<C: Real>(&self, adds: bool) -> bool {
        let p = if adds { &self.to } else { &self.p };
        self.from.dtype() == C::DTYPE
            && p.dtype() == C::DTYPE
            && self.slots.iter().flatten().all(|slot| slot.dtype() == C::DTYPE)
    }

    #[inline(always)]
    pub(super) fn from<C: Real, const MIXED: bool>(&self) -> Array<C, MIXED> {
        Array::of(&self.from, self.from_start, self.len)
    }

    #[inline(always)]
    pub(super) fn p<C: Real, const MIXED: bool>(&self) -> Array<C, MIXED> {
        Array::of(&self.p, self.start, self.len)
    }

    #[inline(always)]
    pub(super) fn to<C: Real, const MIXED: bool>(&self) -> Array<C, MIXED> {
        Array::of(&self.to, self.start, self.len)
    }

    #[inline(always)]
    pub(super) fn slot<C: Real, const MIXED: bool>(&self, slot: usize) -> Array<C, MIXED> {
        let Some(raw) = &self.slots[slot] else { unreachable!("a loop has the arrays that it reads") };
        Array::of(raw, self.start, self.len)
    }

    pub(super) fn params_dtype(&self) -> DType {
        self.to.dtype()
    }
}

/// One array, of the compute type or, if `MIXED`, of 16-bit floats.
#[derive(Clone, Copy)]
pub(super) struct Array<C, const MIXED: bool> {
    first: *mut C,
    dtype: DType,
}

impl<C: Real, const MIXED: bool> Array<C, MIXED> {
    pub(super) const NULL: Self = Array { first: core::ptr::null_mut(), dtype: C::DTYPE };

    #[inline(always)]
    fn of(raw: &RawSlice, start: usize, len: usize) -> Self {
        let dtype = raw.dtype();
        let first = match dtype {
            #[cfg(feature = "half")]
            DType::Bf16 if MIXED && is_single::<C>() => raw.checked::<bf16>(start, len).cast(),
            #[cfg(feature = "half")]
            DType::F16 if MIXED && is_single::<C>() => raw.checked::<f16>(start, len).cast(),
            _ => raw.checked::<C>(start, len),
        };
        Array { first, dtype }
    }

    /// Returns block `b` of `W` elements.
    ///
    /// # Safety
    ///
    /// The array has this block, and elements of this type.
    #[inline(always)]
    unsafe fn block<T, const W: usize>(self, b: usize) -> *mut [T; W] {
        // SAFETY: by the caller's promise.
        unsafe { self.first.cast::<[T; W]>().add(b) }
    }

    /// Loads a block in the compute type. `MIXED` arrays have blocks of [`BLOCK`].
    ///
    /// # Safety
    ///
    /// The array is one of living [`Arrays`] and has this block, and the CPU has the SIMD level.
    #[inline(always)]
    pub(super) unsafe fn load<I: SimdType, const W: usize>(self, b: usize) -> [C; W] {
        // SAFETY: by the caller's promise.
        unsafe { if self.is_native() { *self.block(b) } else { resized(&self.widen::<I>(&*self.block(b))) } }
    }

    /// Stores a block, rounded to nearest.
    ///
    /// # Safety
    ///
    /// As [`load`](Array::load), and the array may be written.
    #[inline(always)]
    pub(super) unsafe fn store<I: SimdType, const W: usize>(self, b: usize, block: &[C; W]) {
        // SAFETY: by the caller's promise.
        unsafe {
            if self.is_native() {
                *self.block(b) = *block;
            } else {
                *self.block(b) = self.narrow::<I>(&resized(block));
            }
        }
    }

    /// Adds updates to a block of parameters. 16-bit updates and sums are rounded.
    ///
    /// # Safety
    ///
    /// As [`store`](Array::store).
    #[inline(always)]
    pub(super) unsafe fn add<I: SimdType, const W: usize>(self, b: usize, u: &[C; W]) {
        // SAFETY: by the caller's promise.
        unsafe {
            if !self.is_native() {
                return *self.block(b) = self.add_rounded::<I>(*self.block(b), &resized(u));
            }
            let mut p: [C; W] = *self.block(b);
            for i in 0..W {
                p[i] = add_update(p[i], u[i]);
            }
            *self.block(b) = p;
        }
    }

    /// Loads an element in the compute type. Here and below, a 16-bit element is converted as a block padded with
    /// zeros: as few instructions, and bitwise identical to the block loop.
    ///
    /// # Safety
    ///
    /// As [`load`](Array::load), for element `i`.
    #[inline(always)]
    pub(super) unsafe fn get<I: SimdType>(self, i: usize) -> C {
        // SAFETY: by the caller's promise.
        unsafe {
            if self.is_native() { *self.first.add(i) } else { self.widen::<I>(&before_zeros(*self.half_ptr(i)))[0] }
        }
    }

    /// Stores an element, rounded to nearest.
    ///
    /// # Safety
    ///
    /// As [`store`](Array::store), for element `i`.
    #[inline(always)]
    pub(super) unsafe fn set<I: SimdType>(self, i: usize, x: C) {
        // SAFETY: by the caller's promise.
        unsafe {
            if self.is_native() {
                *self.first.add(i) = x;
            } else {
                *self.half_ptr(i) = self.narrow::<I>(&before_zeros(x))[0];
            }
        }
    }

    /// Adds an update to a parameter. 16-bit updates and sums are rounded.
    ///
    /// # Safety
    ///
    /// As [`set`](Array::set).
    #[inline(always)]
    pub(super) unsafe fn add_one<I: SimdType>(self, i: usize, u: C) {
        // SAFETY: by the caller's promise.
        unsafe {
            if self.is_native() {
                *self.first.add(i) = add_update(*self.first.add(i), u);
            } else {
                *self.half_ptr(i) = self.add_rounded::<I>(before_zeros(*self.half_ptr(i)), &before_zeros(u))[0];
            }
        }
    }

    /// Returns element `i` of a 16-bit array.
    ///
    /// # Safety
    ///
    /// The array has this element, of 16 bits.
    #[inline(always)]
    unsafe fn half_ptr(self, i: usize) -> *mut u16 {
        // SAFETY: by the caller's promise.
        unsafe { self.first.cast::<u16>().add(i) }
    }

    /// Converts 16-bit floats to the compute type.
    ///
    /// # Safety
    ///
    /// The CPU has the SIMD level; the array has 16-bit elements.
    #[inline(always)]
    #[cfg_attr(not(feature = "half"), allow(clippy::extra_unused_type_parameters, reason = "half floats use it"))]
    unsafe fn widen<I: SimdType>(self, bits: &[u16; BLOCK]) -> [C; BLOCK] {
        match self.dtype {
            #[cfg(feature = "half")]
            // SAFETY: by the caller's promise.
            DType::F16 if const { are_converted(I::SIMD) } => from_single(unsafe { f16::widen_block::<I>(bits) }),
            #[cfg(feature = "half")]
            // SAFETY: as above.
            _ => from_single(unsafe { bf16::widen_block::<I>(bits) }),
            #[cfg(not(feature = "half"))]
            dtype => no_loop(dtype, bits),
        }
    }

    /// Rounds a block to 16-bit floats. Here and below the result is local: LLVM cannot prove that the array does not
    /// overlap the argument, and its overlap check adds a scalar loop.
    ///
    /// # Safety
    ///
    /// As [`widen`](Array::widen).
    #[inline(always)]
    #[cfg_attr(not(feature = "half"), allow(clippy::extra_unused_type_parameters, reason = "half floats use it"))]
    unsafe fn narrow<I: SimdType>(self, block: &[C; BLOCK]) -> [u16; BLOCK] {
        let mut bits = [0; BLOCK];
        match self.dtype {
            #[cfg(feature = "half")]
            // SAFETY: by the caller's promise.
            DType::F16 if const { are_converted(I::SIMD) } => unsafe {
                f16::narrow_block::<I>(&to_single(block), &mut bits);
            },
            #[cfg(feature = "half")]
            // SAFETY: as above.
            _ => unsafe { bf16::narrow_block::<I>(&to_single(block), &mut bits) },
            #[cfg(not(feature = "half"))]
            dtype => no_loop(dtype, (block, &mut bits)),
        }
        bits
    }

    /// Adds updates to 16-bit floats, rounding updates and sums.
    ///
    /// # Safety
    ///
    /// As [`widen`](Array::widen).
    #[inline(always)]
    #[cfg_attr(not(feature = "half"), allow(clippy::extra_unused_type_parameters, reason = "half floats use it"))]
    unsafe fn add_rounded<I: SimdType>(self, mut bits: [u16; BLOCK], u: &[C; BLOCK]) -> [u16; BLOCK] {
        match self.dtype {
            #[cfg(feature = "half")]
            // SAFETY: by the caller's promise.
            DType::F16 if const { are_converted(I::SIMD) } => unsafe { f16::add_block::<I>(to_single(u), &mut bits) },
            #[cfg(feature = "half")]
            // SAFETY: as above.
            _ => unsafe { bf16::add_block::<I>(to_single(u), &mut bits) },
            #[cfg(not(feature = "half"))]
            dtype => no_loop(dtype, (u, &mut bits)),
        }
        bits
    }

    #[inline(always)]
    pub(super) fn is_native(self) -> bool {
        !MIXED || self.dtype == C::DTYPE
    }

    /// Prefetches a later block, further ahead in a loop that only reads.
    ///
    /// # Safety
    ///
    /// As [`load`](Array::load).
    #[inline(always)]
    pub(super) unsafe fn prefetch_after<const W: usize>(self, b: usize, only_reads: bool) {
        // SAFETY: by the caller's promise.
        unsafe {
            match (self.is_native(), only_reads) {
                (true, true) => prefetch_to_read(&*self.block::<C, W>(b)),
                (true, false) => prefetch_after(&*self.block::<C, W>(b)),
                (false, true) => prefetch_to_read(&*self.block::<u16, W>(b)),
                (false, false) => prefetch_after(&*self.block::<u16, W>(b)),
            }
        }
    }

    /// Prefetches block `b` of the blocks that begin at `address`.
    ///
    /// # Safety
    ///
    /// As [`load`](Array::load).
    #[inline(always)]
    pub(super) unsafe fn prefetch_at<const W: usize>(self, b: usize, address: usize) {
        // SAFETY: by the caller's promise.
        unsafe {
            match self.is_native() {
                true => prefetch_beside(&*self.block::<C, W>(b), address + b * size_of::<[C; W]>()),
                false => prefetch_beside(&*self.block::<u16, W>(b), address + b * size_of::<[u16; W]>()),
            }
        }
    }
}

/// Resizes a block. Loops with 16-bit arrays call it with equal lengths.
#[inline(always)]
#[allow(clippy::manual_memcpy, reason = "slices are copied by a call in builds without LTO")]
fn resized<C: Real, const FROM: usize, const TO: usize>(block: &[C; FROM]) -> [C; TO] {
    let mut resized = [C::zero(); TO];
    for i in 0..TO.min(FROM) {
        resized[i] = block[i];
    }
    resized
}

#[cfg(feature = "half")]
#[inline(always)]
fn from_single<C: Real>(singles: [f32; BLOCK]) -> [C; BLOCK] {
    let mut block = [C::zero(); BLOCK];
    for i in 0..BLOCK {
        block[i] = convert(singles[i]);
    }
    block
}

#[cfg(feature = "half")]
#[inline(always)]
fn to_single<C: Real>(block: &[C; BLOCK]) -> [f32; BLOCK] {
    let mut singles = [0.0; BLOCK];
    for i in 0..BLOCK {
        singles[i] = convert(block[i]);
    }
    singles
}

#[inline(always)]
fn before_zeros<T: Copy + Default>(first: T) -> [T; BLOCK] {
    let mut block = [T::default(); BLOCK];
    block[0] = first;
    block
}

#[cfg(not(feature = "half"))]
fn no_loop<T, U>(dtype: DType, _: T) -> U {
    unreachable!("leaves of {dtype} need the feature `half`")
}
