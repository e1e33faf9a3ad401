//! Conversion between `f16` and `f32`: one CPU instruction where the SIMD level has it, else seven to widen and fifteen
//! to narrow; bitwise identical, including NaN.
#![allow(unsafe_code, reason = "instructions of a set that the caller is compiled for")]

use super::simd::{BASELINE_ONLY, SimdLevel, SimdType};
use crate::element::Element;

pub(crate) const BLOCK: usize = 32;

/// Returns whether loops convert `f16` in registers: on x86-64 levels with an instruction for it.
///
/// Otherwise a conversion takes a dozen instructions, and tiles are converted first: as fast, with a quarter of the
/// code.
pub(crate) const fn are_converted(simd: SimdLevel) -> bool {
    cfg!(not(target_arch = "x86_64")) || BASELINE_ONLY || !matches!(simd, SimdLevel::Baseline)
}

/// Converts numbers to `f32`.
///
/// # Safety
///
/// The CPU has the SIMD level: [`dispatch`](super::simd::dispatch) has chosen it.
#[inline(always)]
pub(crate) unsafe fn widen<S: SimdType>(from: &[u16; BLOCK], to: &mut [f32; BLOCK]) {
    match S::SIMD {
        // SAFETY: by the caller's promise.
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        SimdLevel::Avx512 => unsafe { x86::widen_by_16(from, to) },
        // SAFETY: by the caller's promise.
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        SimdLevel::Avx2 => unsafe { x86::widen_by_8(from, to) },
        // A loop: `map` of arrays would call a function compiled for the baseline.
        _ => {
            for i in 0..BLOCK {
                to[i] = half::f16::from_bits(from[i]).widen();
            }
        }
    }
}

/// Converts to nearest, ties to even.
///
/// # Safety
///
/// As [`widen`].
#[inline(always)]
pub(crate) unsafe fn narrow<S: SimdType>(from: &[f32; BLOCK], to: &mut [u16; BLOCK]) {
    match S::SIMD {
        // SAFETY: by the caller's promise.
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        SimdLevel::Avx512 => unsafe { x86::narrow_by_16(from, to) },
        // SAFETY: by the caller's promise.
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        SimdLevel::Avx2 => unsafe { x86::narrow_by_8(from, to) },
        _ => {
            for i in 0..BLOCK {
                to[i] = half::f16::narrow(from[i]).to_bits();
            }
        }
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86 {
    use core::arch::x86_64::{
        _MM_FROUND_TO_NEAREST_INT, _mm_loadu_si128, _mm_storeu_si128, _mm256_cvtph_ps, _mm256_cvtps_ph,
        _mm256_loadu_ps, _mm256_loadu_si256, _mm256_storeu_ps, _mm256_storeu_si256, _mm512_cvtph_ps, _mm512_cvtps_ph,
        _mm512_loadu_ps, _mm512_storeu_ps,
    };

    use super::BLOCK;

    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    pub(super) fn widen_by_8(from: &[u16; BLOCK], to: &mut [f32; BLOCK]) {
        for i in 0..BLOCK / 8 {
            let (from, to) = (&from.as_chunks::<8>().0[i], &mut to.as_chunks_mut::<8>().0[i]);
            // SAFETY: eight numbers each, which need not be aligned.
            unsafe { _mm256_storeu_ps(to.as_mut_ptr(), _mm256_cvtph_ps(_mm_loadu_si128(from.as_ptr().cast()))) };
        }
    }

    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    pub(super) fn narrow_by_8(from: &[f32; BLOCK], to: &mut [u16; BLOCK]) {
        for i in 0..BLOCK / 8 {
            let (from, to) = (&from.as_chunks::<8>().0[i], &mut to.as_chunks_mut::<8>().0[i]);
            // SAFETY: as above.
            unsafe {
                let numbers = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm256_loadu_ps(from.as_ptr()));
                _mm_storeu_si128(to.as_mut_ptr().cast(), numbers);
            }
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(super) fn widen_by_16(from: &[u16; BLOCK], to: &mut [f32; BLOCK]) {
        for i in 0..BLOCK / 16 {
            let (from, to) = (&from.as_chunks::<16>().0[i], &mut to.as_chunks_mut::<16>().0[i]);
            // SAFETY: sixteen numbers each, which need not be aligned.
            unsafe { _mm512_storeu_ps(to.as_mut_ptr(), _mm512_cvtph_ps(_mm256_loadu_si256(from.as_ptr().cast()))) };
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(super) fn narrow_by_16(from: &[f32; BLOCK], to: &mut [u16; BLOCK]) {
        for i in 0..BLOCK / 16 {
            let (from, to) = (&from.as_chunks::<16>().0[i], &mut to.as_chunks_mut::<16>().0[i]);
            // SAFETY: as above.
            unsafe {
                let numbers = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm512_loadu_ps(from.as_ptr()));
                _mm256_storeu_si256(to.as_mut_ptr().cast(), numbers);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::*;
    use crate::numeric::simd::{Job, SimdLevel, detected_simd_level, dispatch};

    struct StoredBlock<'a>(&'a [u16; BLOCK], &'a [f32; BLOCK]);

    impl Job for StoredBlock<'_> {
        type Output = ([f32; BLOCK], [u16; BLOCK]);
        fn run(self) -> Self::Output {
            unreachable!("it is run on a set")
        }
        #[inline(always)]
        fn run_on<S: SimdType>(self) -> Self::Output {
            let (mut wide, mut narrowed) = ([0.0; BLOCK], [0; BLOCK]);
            // SAFETY: `dispatch` has chosen the SIMD level.
            unsafe {
                widen::<S>(self.0, &mut wide);
                narrow::<S>(self.1, &mut narrowed);
            }
            (wide, narrowed)
        }
    }

    #[test]
    fn every_simd_level_converts_all_numbers_alike() {
        for simd in [SimdLevel::Baseline, SimdLevel::Avx2, SimdLevel::Avx512]
            .into_iter()
            .filter(|simd| *simd <= detected_simd_level())
        {
            for first in (0..=u16::MAX).step_by(BLOCK) {
                let bits: [u16; BLOCK] = core::array::from_fn(|i| first + i as u16);
                // Each `f16`, and between: ties, their neighbours, all kinds of NaN.
                for between in [0, 1, 0xfff, 0x1000, 0x1001, 0x1fff] {
                    let values = bits.map(|bits| f32::from_bits(f16::from_bits(bits).to_f32().to_bits() + between));
                    let (wide, narrowed) = dispatch(simd, StoredBlock(&bits, &values));
                    assert_eq!(wide.map(f32::to_bits), bits.map(|bits| f16::from_bits(bits).widen().to_bits()));
                    assert_eq!(narrowed, values.map(|value| f16::narrow(value).to_bits()), "{simd:?} {first:x}");
                }
            }
        }
    }
}
