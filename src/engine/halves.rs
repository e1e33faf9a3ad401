//! Blocks of numbers of 16 bits, brought into registers as `f32` and back.

use half::{bf16, f16};

use super::isa::Set;
use crate::element::{Element, SixteenBits};
use crate::numeric::half_floats::{self, BLOCK};
use crate::tree::add_update;

/// A type of 16 bits, in blocks.
pub(crate) trait InBlocks: SixteenBits {
    /// The numbers that these bits are.
    ///
    /// # Safety
    ///
    /// The CPU has the instruction set.
    #[allow(unsafe_code, reason = "the processor's own conversions")]
    unsafe fn widen_block<S: Set>(bits: &[u16; BLOCK]) -> [f32; BLOCK];

    /// The nearest numbers of this type, as bits.
    ///
    /// # Safety
    ///
    /// As [`widen_block`](InBlocks::widen_block).
    #[allow(unsafe_code, reason = "the processor's own conversions")]
    unsafe fn narrow_block<S: Set>(block: &[f32; BLOCK], bits: &mut [u16; BLOCK]);

    /// Adds updates to parameters, rounded as `written::add_rounded` does. It brings them into `f32` once more: as one
    /// value for this and for what made the updates, a compiler may keep them in memory and read them there in other
    /// pieces than it wrote, which a processor waits for.
    ///
    /// # Safety
    ///
    /// As [`widen_block`](InBlocks::widen_block).
    #[allow(unsafe_code, reason = "the processor's own conversions")]
    unsafe fn add_block<S: Set>(u: [f32; BLOCK], p: &mut [u16; BLOCK]);
}

// Loops, not `map` of arrays: that would call a function compiled for the baseline.
impl InBlocks for bf16 {
    #[inline(always)]
    #[allow(unsafe_code, reason = "shifts, on any CPU")]
    unsafe fn widen_block<S: Set>(bits: &[u16; BLOCK]) -> [f32; BLOCK] {
        let mut wide = [0.0; BLOCK];
        for i in 0..BLOCK {
            wide[i] = bf16::from_bits(bits[i]).widen();
        }
        wide
    }

    #[inline(always)]
    #[allow(unsafe_code, reason = "integers, on any CPU")]
    unsafe fn narrow_block<S: Set>(block: &[f32; BLOCK], bits: &mut [u16; BLOCK]) {
        for i in 0..BLOCK {
            bits[i] = bf16::narrow(block[i]).to_bits();
        }
    }

    #[inline(always)]
    #[allow(unsafe_code, reason = "integers, on any CPU")]
    unsafe fn add_block<S: Set>(u: [f32; BLOCK], p: &mut [u16; BLOCK]) {
        let sum = |p, u| bf16::of_sum(add_update(bf16::from_bits(p).widen(), bf16::rounded(u))).to_bits();
        for i in 0..BLOCK {
            p[i] = sum(p[i], u[i]);
        }
    }
}

impl InBlocks for f16 {
    #[inline(always)]
    #[allow(unsafe_code, reason = "the processor's own conversions")]
    unsafe fn widen_block<S: Set>(bits: &[u16; BLOCK]) -> [f32; BLOCK] {
        let mut wide = [0.0; BLOCK];
        // SAFETY: by the caller's promise.
        unsafe { half_floats::widen::<S>(bits, &mut wide) };
        wide
    }

    #[inline(always)]
    #[allow(unsafe_code, reason = "the processor's own conversions")]
    unsafe fn narrow_block<S: Set>(block: &[f32; BLOCK], bits: &mut [u16; BLOCK]) {
        // SAFETY: by the caller's promise.
        unsafe { half_floats::narrow::<S>(block, bits) };
    }

    #[inline(always)]
    #[allow(unsafe_code, reason = "the processor's own conversions")]
    unsafe fn add_block<S: Set>(mut u: [f32; BLOCK], p: &mut [u16; BLOCK]) {
        let mut bits = [0; BLOCK];
        // SAFETY: by the caller's promise.
        unsafe {
            let here = Self::widen_block::<S>(p);
            half_floats::narrow::<S>(&u, &mut bits);
            half_floats::widen::<S>(&bits, &mut u);
            for i in 0..BLOCK {
                u[i] = add_update(here[i], u[i]);
            }
            half_floats::narrow::<S>(&u, p);
        }
    }
}
