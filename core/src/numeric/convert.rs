//! Conversion of a leaf's chunks to the compute type and back.
#![allow(unsafe_code, reason = "ranges of raw slices; see `memory`")]

use super::quantization;
use super::simd::{Job, SimdLevel, dispatch};
#[cfg(feature = "half")]
use super::{half_floats, simd::SimdType};
use crate::element::{DType, Element, QUANTIZED_BLOCK, QUANTIZED_SCALE, Real, TypedJob, convert, with_dtype};
use crate::memory::RawSlice;
#[cfg(feature = "half")]
use half::slice::{HalfBitsSliceExt as _, HalfFloatSliceExt as _};

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
    let from = &from[..to.len()];
    for i in 0..to.len() {
        to[i] = convert(from[i]);
    }
}

#[cfg(feature = "half")]
struct FromF16<'a>(SimdLevel, &'a [half::f16]);

#[cfg(feature = "half")]
impl<'a> TypedJob for FromF16<'a> {
    type Argument<C: Real> = &'a mut [C];
    fn single(self, to: &mut [f32]) {
        dispatch(self.0, Widen(Convert { from: self.1, to }));
    }
    fn double(self, to: &mut [f64]) {
        dispatch(self.0, Convert { from: self.1, to });
    }
}

#[cfg(feature = "half")]
struct ToF16<'a>(SimdLevel, &'a mut [half::f16]);

#[cfg(feature = "half")]
impl<'a> TypedJob for ToF16<'a> {
    type Argument<C: Real> = &'a [C];
    fn single(self, from: &[f32]) {
        dispatch(self.0, Narrow(Convert { from, to: self.1 }));
    }
    fn double(self, from: &[f64]) {
        dispatch(self.0, Convert { from, to: self.1 });
    }
}

/// Converts by CPU instructions.
#[cfg(feature = "half")]
struct Widen<'a>(Convert<'a, half::f16, f32>);

#[cfg(feature = "half")]
impl Job for Widen<'_> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        self.0.run();
    }
    #[inline(always)]
    fn run_on<S: SimdType>(self) {
        let (from, from_end) = self.0.from.reinterpret_cast().as_chunks();
        let (to, to_end) = self.0.to.as_chunks_mut();
        for (block, to) in to.iter_mut().enumerate() {
            // SAFETY: `dispatch` has chosen the SIMD level.
            unsafe { half_floats::widen::<S>(&from[block], to) };
        }
        convert_slice::<half::f16, f32>(from_end.reinterpret_cast(), to_end);
    }
}

#[cfg(feature = "half")]
struct Narrow<'a>(Convert<'a, f32, half::f16>);

#[cfg(feature = "half")]
impl Job for Narrow<'_> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        self.0.run();
    }
    #[inline(always)]
    fn run_on<S: SimdType>(self) {
        let (from, from_end) = self.0.from.as_chunks();
        let (to, to_end) = self.0.to.reinterpret_cast_mut().as_chunks_mut();
        for (block, to) in to.iter_mut().enumerate() {
            // SAFETY: as above.
            unsafe { half_floats::narrow::<S>(&from[block], to) };
        }
        convert_slice::<f32, half::f16>(from_end, to_end.reinterpret_cast_mut());
    }
}

struct Decode<'a>(SimdLevel, DType, &'a [u8]);

impl<'a> TypedJob for Decode<'a> {
    type Argument<C: Real> = &'a mut [C];
    fn single(self, to: &mut [f32]) {
        quantization::decode(self.0, self.1, self.2, to);
    }
    fn double(self, to: &mut [f64]) {
        let mut numbers = [0.0; QUANTIZED_BLOCK];
        for (to, from) in to.chunks_mut(QUANTIZED_BLOCK).zip(self.2.chunks(QUANTIZED_BLOCK + QUANTIZED_SCALE)) {
            let numbers = &mut numbers[..to.len()];
            quantization::decode(self.0, self.1, from, numbers);
            convert_slice(numbers, to);
        }
    }
}

struct Encode<'a>(SimdLevel, DType, &'a mut [u8]);

impl<'a> TypedJob for Encode<'a> {
    type Argument<C: Real> = &'a [C];
    fn single(self, from: &[f32]) {
        quantization::encode(self.0, self.1, from, self.2);
    }
    fn double(self, from: &[f64]) {
        let mut numbers = [0.0; QUANTIZED_BLOCK];
        for (from, to) in from.chunks(QUANTIZED_BLOCK).zip(self.2.chunks_mut(QUANTIZED_BLOCK + QUANTIZED_SCALE)) {
            let numbers = &mut numbers[..from.len()];
            convert_slice(from, numbers);
            quantization::encode(self.0, self.1, numbers, to);
        }
    }
}

/// Loads a range; of quantized arrays, whole blocks.
///
/// # Safety
///
/// The memory is alive and has no concurrent writer.
pub(crate) unsafe fn load<C: Real>(simd: SimdLevel, raw: RawSlice, start: usize, to: &mut [C]) {
    if raw.dtype().is_quantized() {
        // SAFETY: by the caller's promise.
        let from = unsafe { raw.bytes(start, to.len()) };
        return C::dispatch_type(Decode(simd, raw.dtype(), from), to);
    }
    #[cfg(feature = "half")]
    if raw.dtype() == DType::F16 {
        // SAFETY: by the caller's promise.
        return C::dispatch_type(FromF16(simd, unsafe { raw.slice(start, to.len()) }), to);
    }
    // SAFETY: by the caller's promise.
    with_dtype!(raw.dtype(), T => dispatch(simd, Convert { from: unsafe { raw.slice::<T>(start, to.len()) }, to }));
}

/// Stores a range; of quantized arrays, whole blocks.
///
/// # Safety
///
/// The memory is alive and exclusively the caller's.
pub(crate) unsafe fn store<C: Real>(simd: SimdLevel, raw: RawSlice, start: usize, from: &[C]) {
    if raw.dtype().is_quantized() {
        // SAFETY: by the caller's promise.
        let to = unsafe { raw.bytes_mut(start, from.len()) };
        return C::dispatch_type(Encode(simd, raw.dtype(), to), from);
    }
    #[cfg(feature = "half")]
    if raw.dtype() == DType::F16 {
        // SAFETY: by the caller's promise.
        return C::dispatch_type(ToF16(simd, unsafe { raw.slice_mut(start, from.len()) }), from);
    }
    // SAFETY: by the caller's promise.
    with_dtype!(raw.dtype(), T => dispatch(simd, Convert { from, to: unsafe { raw.slice_mut::<T>(start, from.len()) } }));
}
