//! Blocks of numbers of 16 bits, brought into registers as `f32` and back.

use super::kernel::BLOCK;
use crate::element::{DType, Element, SixteenBits};
use crate::memory::RawSlice;
use crate::tree::add_update;
use half::slice::HalfFloatSliceExt as _;

/// Which of the two types it is. Known where a loop runs, not where it is compiled, so that there is one loop for both.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Format {
    Bf16,
    F16,
}

/// Runs `$body` with the type alias `$H` standing for the type of a [`Format`].
macro_rules! with_format {
    ($format:expr, $H:ident => $body:expr) => {
        match $format {
            Format::Bf16 => {
                type $H = half::bf16;
                $body
            }
            Format::F16 => {
                type $H = half::f16;
                $body
            }
        }
    };
}

impl Format {
    pub(crate) fn of(dtype: DType) -> Option<Format> {
        match dtype {
            DType::Bf16 => Some(Format::Bf16),
            DType::F16 => Some(Format::F16),
            _ => None,
        }
    }

    /// A stretch to read, as bits.
    ///
    /// # Safety
    ///
    /// As for [`RawSlice::slice`].
    #[allow(unsafe_code, reason = "stretches of raw slices; see `memory`")]
    pub(crate) unsafe fn bits<'a>(self, raw: RawSlice, start: usize, len: usize) -> &'a [u16] {
        // SAFETY: by the caller's promise.
        with_format!(self, H => unsafe { raw.slice::<H>(start, len) }.reinterpret_cast())
    }

    /// A stretch to write, as bits.
    ///
    /// # Safety
    ///
    /// As for [`RawSlice::slice_mut`].
    #[allow(unsafe_code, reason = "stretches of raw slices; see `memory`")]
    pub(crate) unsafe fn bits_mut<'a>(self, raw: RawSlice, start: usize, len: usize) -> &'a mut [u16] {
        // SAFETY: by the caller's promise.
        with_format!(self, H => unsafe { raw.slice_mut::<H>(start, len) }.reinterpret_cast_mut())
    }

    // Loops, not `map` of arrays: that would call a function compiled for the baseline.

    #[inline(always)]
    pub(crate) fn widen(self, bits: &[u16; BLOCK]) -> [f32; BLOCK] {
        let mut wide = [0.0; BLOCK];
        with_format!(self, H => for i in 0..BLOCK {
            wide[i] = H::from_bits(bits[i]).widen();
        });
        wide
    }

    /// Adds updates to parameters, rounded as `written::add_rounded` does.
    #[inline(always)]
    pub(crate) fn add(self, here: &[f32; BLOCK], u: &[f32; BLOCK], p: &mut [u16; BLOCK]) {
        with_format!(self, H => for i in 0..BLOCK {
            p[i] = H::of_sum(add_update(here[i], H::rounded(u[i]))).to_bits();
        });
    }
}
