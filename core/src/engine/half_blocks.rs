//! Blocks of 16-bit floats, converted to and from `f32` in registers.

use half::{bf16, f16};

use super::simd::SimdType;
use crate::element::{Element, HalfFloat};
use crate::numeric::half_floats::{self, BLOCK};
use crate::tree::add_update;

pub(crate) trait HalfBlocks: HalfFloat {
    /// Widens 16-bit floats.
    ///
    /// # Safety
    ///
    /// The CPU has the SIMD level.
    #[allow(unsafe_code, reason = "the processor's own conversions")]
    unsafe fn widen_block<S: SimdType>(bits: &[u16; BLOCK]) -> [f32; BLOCK];

    /// Rounds to the nearest 16-bit floats.
    ///
    /// # Safety
    ///
    /// As [`widen_block`](HalfBlocks::widen_block).
    #[allow(unsafe_code, reason = "the processor's own conversions")]
    unsafe fn narrow_block<S: SimdType>(block: &[f32; BLOCK], bits: &mut [u16; BLOCK]);

    /// Adds updates to parameters, as `sink::add_rounded`. Widens the parameters again: LLVM could spill shared
    /// widened values and reload them at another width, which defeats store forwarding.
    ///
    /// # Safety
    ///
    /// As [`widen_block`](HalfBlocks::widen_block).
    #[allow(unsafe_code, reason = "the processor's own conversions")]
    unsafe fn add_block<S: SimdType>(u: [f32; BLOCK], p: &mut [u16; BLOCK]);
}

// Loops, because `map` on arrays would call a function compiled for the baseline.
impl HalfBlocks for bf16 {
    #[inline(always)]
    #[allow(unsafe_code, reason = "shifts, on any CPU")]
    unsafe fn widen_block<S: SimdType>(bits: &[u16; BLOCK]) -> [f32; BLOCK] {
        let mut wide = [0.0; BLOCK];
        for i in 0..BLOCK {
            wide[i] = bf16::from_bits(bits[i]).widen();
        }
        wide
    }

    #[inline(always)]
    #[allow(unsafe_code, reason = "integers, on any CPU")]
    unsafe fn narrow_block<S: SimdType>(block: &[f32; BLOCK], bits: &mut [u16; BLOCK]) {
        for i in 0..BLOCK {
            bits[i] = bf16::narrow(block[i]).to_bits();
        }
    }

    #[inline(always)]
    #[allow(unsafe_code, reason = "integers, on any CPU")]
    unsafe fn add_block<S: SimdType>(u: [f32; BLOCK], p: &mut [u16; BLOCK]) {
        let sum = |p, u| bf16::of_sum(add_update(bf16::from_bits(p).widen(), bf16::rounded(u))).to_bits();
        for i in 0..BLOCK {
            p[i] = sum(p[i], u[i]);
        }
    }
}

impl HalfBlocks for f16 {
    #[inline(always)]
    #[allow(unsafe_code, reason = "the processor's own conversions")]
    unsafe fn widen_block<S: SimdType>(bits: &[u16; BLOCK]) -> [f32; BLOCK] {
        let mut wide = [0.0; BLOCK];
        // SAFETY: as the caller guarantees.
        unsafe { half_floats::widen::<S>(bits, &mut wide) };
        wide
    }

    #[inline(always)]
    #[allow(unsafe_code, reason = "the processor's own conversions")]
    unsafe fn narrow_block<S: SimdType>(block: &[f32; BLOCK], bits: &mut [u16; BLOCK]) {
        // SAFETY: as the caller guarantees.
        unsafe { half_floats::narrow::<S>(block, bits) };
    }

    #[inline(always)]
    #[allow(unsafe_code, reason = "the processor's own conversions")]
    unsafe fn add_block<S: SimdType>(mut u: [f32; BLOCK], p: &mut [u16; BLOCK]) {
        let mut bits = [0; BLOCK];
        // SAFETY: as the caller guarantees.
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
