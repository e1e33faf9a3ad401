//! Arrays of which it is known when a loop runs whether they have 16 bits or 32: a block of each is brought into
//! registers as `f32`, and back.

use core::ops::Range;

use half::{bf16, f16};

use super::ahead::prefetch_after;
use super::halves::{Format, InBlocks};
use super::isa::{Isa, Set};
use super::kernel::{BLOCK, MOST_SLOTS};
use crate::element::DType;
use crate::memory::RawSlice;
use crate::numeric::half_floats::are_converted;
use crate::tree::add_update;

/// Whole blocks of an array, of one of three types: `S` are those of `f32`, `H` those of 16 bits.
pub(crate) enum Blocks<S, H> {
    Single(S),
    Bf16(H),
    F16(H),
}

/// Blocks to read.
pub(crate) type ReadBlocks<'a> = Blocks<&'a [[f32; BLOCK]], &'a [[u16; BLOCK]]>;
/// Blocks to read and write.
pub(crate) type WriteBlocks<'a> = Blocks<&'a mut [[f32; BLOCK]], &'a mut [[u16; BLOCK]]>;
/// The state arrays of one piece; those past the chain's own are empty.
pub(crate) type SlotBlocks<'a> = [WriteBlocks<'a>; MOST_SLOTS];

impl Default for WriteBlocks<'_> {
    fn default() -> Self {
        Blocks::Single(&mut [])
    }
}

impl ReadBlocks<'_> {
    /// The whole blocks of a stretch, if it has one of the three types and the instruction set has loops for it.
    ///
    /// # Safety
    ///
    /// As for [`RawSlice::slice`].
    #[allow(unsafe_code, reason = "stretches of raw slices; see `memory`")]
    pub(super) unsafe fn of(raw: RawSlice, Range { start, end }: Range<usize>, isa: Isa) -> Option<Self> {
        let len = end - start;
        // SAFETY: by the caller's promise.
        Some(unsafe {
            match (raw.dtype(), Format::of(raw.dtype(), isa)) {
                (DType::F32, _) => Blocks::Single(raw.slice(start, len).as_chunks().0),
                (_, Some(format @ Format::Bf16)) => Blocks::Bf16(format.bits(raw, start, len).as_chunks().0),
                (_, Some(format @ Format::F16)) => Blocks::F16(format.bits(raw, start, len).as_chunks().0),
                _ => return None,
            }
        })
    }

    /// A block as `f32`.
    ///
    /// # Safety
    ///
    /// The CPU has the instruction set.
    #[inline(always)]
    #[allow(unsafe_code, reason = "the processor's own conversions")]
    pub(super) unsafe fn bring<I: Set>(&self, b: usize) -> [f32; BLOCK] {
        // SAFETY: by the caller's promise.
        unsafe {
            match self {
                Blocks::Single(all) => all[b],
                Blocks::Bf16(all) => bf16::widen_block::<I>(&all[b]),
                Blocks::F16(_) if const { !are_converted(I::ISA) } => unreachable!("there is no such loop"),
                Blocks::F16(all) => f16::widen_block::<I>(&all[b]),
            }
        }
    }

    /// Prefetches a later block.
    #[inline(always)]
    pub(super) fn prefetch_after(&self, b: usize) {
        match self {
            Blocks::Single(all) => prefetch_after(&all[b]),
            Blocks::Bf16(all) | Blocks::F16(all) => prefetch_after(&all[b]),
        }
    }
}

impl<'a> WriteBlocks<'a> {
    /// As [`ReadBlocks::of`].
    ///
    /// # Safety
    ///
    /// As for [`RawSlice::slice_mut`].
    #[allow(unsafe_code, reason = "stretches of raw slices; see `memory`")]
    pub(super) unsafe fn of_mut(raw: RawSlice, Range { start, end }: Range<usize>, isa: Isa) -> Option<Self> {
        let len = end - start;
        // SAFETY: by the caller's promise.
        Some(unsafe {
            match (raw.dtype(), Format::of(raw.dtype(), isa)) {
                (DType::F32, _) => Blocks::Single(raw.slice_mut(start, len).as_chunks_mut().0),
                (_, Some(format @ Format::Bf16)) => Blocks::Bf16(format.bits_mut(raw, start, len).as_chunks_mut().0),
                (_, Some(format @ Format::F16)) => Blocks::F16(format.bits_mut(raw, start, len).as_chunks_mut().0),
                _ => return None,
            }
        })
    }

    /// The same blocks, to read.
    #[inline(always)]
    pub(super) fn to_read(&self) -> ReadBlocks<'_> {
        match self {
            Blocks::Single(all) => Blocks::Single(all),
            Blocks::Bf16(all) => Blocks::Bf16(all),
            Blocks::F16(all) => Blocks::F16(all),
        }
    }

    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        match self {
            Blocks::Single(all) => all.len(),
            Blocks::Bf16(all) | Blocks::F16(all) => all.len(),
        }
    }

    /// Puts a block back, rounded to what there is.
    ///
    /// # Safety
    ///
    /// As [`bring`](ReadBlocks::bring).
    #[inline(always)]
    #[allow(unsafe_code, reason = "the processor's own conversions")]
    pub(super) unsafe fn put<I: Set>(&mut self, b: usize, block: &[f32; BLOCK]) {
        // By way of a block of its own, here and below: it is not known that the array is not the one given, and with a
        // check of that comes a loop over single elements.
        let mut bits = [0; BLOCK];
        // SAFETY: by the caller's promise.
        unsafe {
            match self {
                Blocks::Single(all) => all[b] = *block,
                Blocks::Bf16(all) => {
                    bf16::narrow_block::<I>(block, &mut bits);
                    all[b] = bits;
                }
                Blocks::F16(_) if const { !are_converted(I::ISA) } => unreachable!("there is no such loop"),
                Blocks::F16(all) => {
                    f16::narrow_block::<I>(block, &mut bits);
                    all[b] = bits;
                }
            }
        }
    }

    pub(super) fn dtype(&self) -> DType {
        match self {
            Blocks::Single(_) => DType::F32,
            Blocks::Bf16(_) => DType::Bf16,
            Blocks::F16(_) => DType::F16,
        }
    }

    /// Whether it has 32 bits.
    #[inline(always)]
    pub(super) fn is_single(&self) -> bool {
        matches!(self, Blocks::Single(_))
    }

    /// Adds updates to a block of parameters of 32 bits, which is `here`.
    #[inline(always)]
    pub(super) fn add(&mut self, b: usize, here: &[f32; BLOCK], u: &[f32; BLOCK]) {
        let mut sums = [0.0; BLOCK];
        if let Blocks::Single(all) = self {
            for i in 0..BLOCK {
                sums[i] = add_update(here[i], u[i]);
            }
            all[b] = sums;
        }
    }

    /// Adds updates to a block of parameters of 16 bits.
    ///
    /// # Safety
    ///
    /// As [`bring`](ReadBlocks::bring).
    #[inline(always)]
    #[allow(unsafe_code, reason = "the processor's own conversions")]
    pub(super) unsafe fn add_rounded<I: Set>(&mut self, b: usize, u: [f32; BLOCK]) {
        // SAFETY: by the caller's promise.
        unsafe {
            match self {
                Blocks::Single(_) => {}
                Blocks::Bf16(all) => {
                    let mut bits = all[b];
                    bf16::add_block::<I>(u, &mut bits);
                    all[b] = bits;
                }
                Blocks::F16(_) if const { !are_converted(I::ISA) } => unreachable!("there is no such loop"),
                Blocks::F16(all) => {
                    let mut bits = all[b];
                    f16::add_block::<I>(u, &mut bits);
                    all[b] = bits;
                }
            }
        }
    }
}
