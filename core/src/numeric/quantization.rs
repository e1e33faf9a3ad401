//! Quantized numbers: blocks of 256 8-bit codes after a scale, the largest finite magnitude as an `f32`.
//!
//! The sign bit of its scale marks a block with NaN or infinities. Its codes of magnitude 1 are infinities, those of
//! magnitude 2 NaN, so that each affects its own element only.
//!
//! Other numbers are rounded stochastically to an adjacent code, with probabilities proportional to nearness (of roots,
//! if codes are roots): under rounding to nearest, a mean that takes a thousandth of a square each step would never
//! decrease. The random bits are the number's last bits and its place: they need no key, are the same on each CPU, and
//! leave exact codes unchanged.

use core::marker::PhantomData;

use super::simd::{Job, SimdLevel, dispatch};
use crate::element::{DType, QUANTIZED_BLOCK as BLOCK, QUANTIZED_SCALE as SCALE};

type Block = [u8; BLOCK + SCALE];

/// Magnitudes of codes in a marked block: infinities, NaN, and the least other number.
const INFINITE: u32 = 1;
const NAN: u32 = 2;
const LEAST_FINITE: u32 = 3;

trait Format: Copy {
    /// True if the highest bit is a sign.
    const SIGNED: bool;
    /// Returns a code's magnitude.
    fn size(code: u8) -> u32;
    /// Returns the code of this magnitude, negative if requested and signed.
    fn with_sign(size: u32, negative: bool) -> u32;
    /// The least scale, for which derived values are normal numbers.
    const MIN_SCALE: f32;
    fn of(scale: f32) -> Self;
    fn decode(self, code: u8) -> f32;
    /// Quantizes a number; unsigned, zero if negative.
    fn encode(self, x: f32, place: usize) -> u32;
}

/// Returns the rounding threshold: 8 bits, from the number and its place.
///
/// The upper bits of numbers with short fractions contribute too. A block's places have each threshold once, so that
/// the right share of equal numbers is rounded up.
#[inline(always)]
fn rounding_threshold(x: f32, place: usize) -> u32 {
    (x.to_bits() ^ x.to_bits() >> 15 ^ PLACE_TERMS[place]) & 0xff
}

/// The contribution of a place: a table, because integer products are slow, and SSE2 lacks them.
static PLACE_TERMS: [u32; BLOCK] = {
    let mut places = [0; BLOCK];
    let mut place = 0;
    while place < BLOCK {
        places[place] = (place as u32 * 167) & 0xff;
        place += 1;
    }
    places
};

/// Rounds to the nearest integer, for 0 ≤ `x` < 2²².
#[inline(always)]
fn whole(x: f32) -> u32 {
    (x + 8_388_608.0).to_bits() & 0x7f_ffff
}

/// `scale·(k/127)²`, with the sign of `k`.
#[derive(Clone, Copy)]
struct Root {
    scale: f32,
    inverse: f32,
}

impl Format for Root {
    const SIGNED: bool = true;
    fn size(code: u8) -> u32 {
        (code as i8).unsigned_abs().into()
    }
    fn with_sign(size: u32, negative: bool) -> u32 {
        if negative { size.wrapping_neg() } else { size }
    }
    const MIN_SCALE: f32 = f32::MIN_POSITIVE;
    #[inline(always)]
    fn of(scale: f32) -> Root {
        Root { scale, inverse: 1.0 / scale }
    }
    #[inline(always)]
    fn decode(self, code: u8) -> f32 {
        let root = f32::from(code as i8) * (1.0 / 127.0);
        root * root.abs() * self.scale
    }
    #[inline(always)]
    fn encode(self, x: f32, place: usize) -> u32 {
        let size = (whole((x.abs() * self.inverse).sqrt() * (127.0 * 256.0)) + rounding_threshold(x, place)) >> 8;
        let sign = (x.to_bits() as i32 >> 31) as u32;
        (size ^ sign).wrapping_sub(sign)
    }
}

/// `scale·(k/255)⁴`.
#[derive(Clone, Copy)]
struct FourthRoot {
    scale: f32,
    inverse: f32,
}

impl Format for FourthRoot {
    const SIGNED: bool = false;
    fn size(code: u8) -> u32 {
        code.into()
    }
    fn with_sign(size: u32, _: bool) -> u32 {
        size
    }
    const MIN_SCALE: f32 = f32::MIN_POSITIVE;
    #[inline(always)]
    fn of(scale: f32) -> FourthRoot {
        FourthRoot { scale, inverse: 1.0 / scale }
    }
    #[inline(always)]
    fn decode(self, code: u8) -> f32 {
        let root = f32::from(code) * (1.0 / 255.0);
        let square = root * root;
        square * square * self.scale
    }
    #[inline(always)]
    fn encode(self, x: f32, place: usize) -> u32 {
        // Smaller numbers, and this one, become code 1, whatever the threshold: only zero has code 0.
        const MIN_SCALE: f32 = 1.0 / (255.0 * 255.0 * 255.0 * 255.0);
        let part = x * self.inverse;
        let part = if part > MIN_SCALE { part } else { MIN_SCALE };
        let size = (whole(part.sqrt().sqrt() * (255.0 * 256.0)) + rounding_threshold(x, place)) >> 8;
        if x.to_bits() as i32 > 0 { size } else { 0 }
    }
}

/// The bits of an `f32` down to the third of its fraction, minus an offset.
///
/// The offset maps the block's largest to 127, or unsigned to 255. Codes are eighths of an octave, evenly spaced within
/// it; zero has its own.
#[derive(Clone, Copy)]
struct Log<const SIGNED: bool> {
    /// The bits of code 0.
    base: i32,
}

/// The number of an `f32`'s lower bits that codes omit.
const DROPPED_BITS: u32 = 20;

impl<const SIGNED: bool> Format for Log<SIGNED> {
    const SIGNED: bool = SIGNED;
    fn size(code: u8) -> u32 {
        if SIGNED { code & 127 } else { code }.into()
    }
    fn with_sign(size: u32, negative: bool) -> u32 {
        if SIGNED && negative { size | 128 } else { size }
    }
    const MIN_SCALE: f32 = f32::from_bits((if SIGNED { 128 } else { 256 }) << DROPPED_BITS);
    #[inline(always)]
    fn of(scale: f32) -> Log<SIGNED> {
        Log { base: scale.to_bits() as i32 - ((if SIGNED { 127 } else { 255 }) << DROPPED_BITS) }
    }
    #[inline(always)]
    fn decode(self, code: u8) -> f32 {
        let (size, sign) = if SIGNED { (code & 127, u32::from(code & 128) << 24) } else { (code, 0) };
        let bits = if size == 0 { 0 } else { self.base + (i32::from(size) << DROPPED_BITS) };
        f32::from_bits(bits as u32 | sign)
    }
    #[inline(always)]
    fn encode(self, x: f32, place: usize) -> u32 {
        let bits = x.to_bits() as i32;
        let up = ((rounding_threshold(x, place) as i32) << (DROPPED_BITS - 8)) + (1 << (DROPPED_BITS - 9));
        let size = ((bits & i32::MAX) - self.base + up) >> DROPPED_BITS;
        let size = if size < 0 { 0 } else { size };
        if SIGNED {
            return size as u32 | x.to_bits() >> 24 & 128;
        }
        let size = if size < 1 { 1 } else { size };
        if bits > 0 { size as u32 } else { 0 }
    }
}

struct Decode<'a, K> {
    from: &'a [Block],
    to: &'a mut [[f32; BLOCK]],
    code: PhantomData<K>,
}

impl<K: Format> Job for Decode<'_, K> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        let from = &self.from[..self.to.len()];
        for (b, to) in self.to.iter_mut().enumerate() {
            let [s0, s1, s2, s3, codes @ ..] = &from[b];
            let scale = f32::from_le_bytes([*s0, *s1, *s2, *s3]);
            // Infinite, NaN or marked.
            if scale.to_bits() >= f32::INFINITY.to_bits() {
                decode_marked::<K>(scale, codes, to);
                continue;
            }
            decode_block(K::of(scale), codes, to);
        }
    }
}

/// A separate function, as `encode_block`: arguments are known not to alias, fields are not, and LLVM would compile the
/// loop twice, with a scalar version.
#[inline(always)]
fn decode_block<K: Format>(code: K, from: &[u8; BLOCK], to: &mut [f32; BLOCK]) {
    for i in 0..BLOCK {
        to[i] = code.decode(from[i]);
    }
}

/// Decodes a marked block; with a scale that is not finite, all NaN.
#[cold]
#[inline(never)]
fn decode_marked<K: Format>(scale: f32, from: &[u8; BLOCK], to: &mut [f32; BLOCK]) {
    let code = K::of(scale.abs());
    for (to, from) in to.iter_mut().zip(from) {
        *to = match K::size(*from) {
            _ if !scale.is_finite() => f32::NAN,
            INFINITE if K::SIGNED && from & 128 > 0 => f32::NEG_INFINITY,
            INFINITE => f32::INFINITY,
            NAN => f32::NAN,
            _ => code.decode(*from),
        };
    }
}

/// As [`encode_block`], for a block to mark.
#[cold]
#[inline(never)]
fn encode_marked<K: Format>(scale: f32, from: &[f32; BLOCK], to: &mut [u8; BLOCK]) {
    let code = K::of(scale.abs());
    for (place, (x, to)) in from.iter().zip(to).enumerate() {
        let negative = x.is_sign_negative();
        let code = if x.is_finite() {
            let code = code.encode(*x, place) & 0xff;
            match K::size(code as u8) {
                INFINITE | NAN if K::SIGNED => 0,
                INFINITE | NAN => LEAST_FINITE,
                _ => code,
            }
        } else if x.is_infinite() && (K::SIGNED || !negative) {
            K::with_sign(INFINITE, negative)
        } else {
            NAN
        };
        *to = code as u8;
    }
}

/// Returns the largest finite magnitude: the scale before marking.
#[cold]
#[inline(never)]
fn largest_finite(block: &[f32; BLOCK]) -> f32 {
    block.iter().map(|x| x.abs()).filter(|x| x.is_finite()).fold(0.0, f32::max)
}

struct Encode<'a, K> {
    from: &'a [[f32; BLOCK]],
    to: &'a mut [Block],
    code: PhantomData<K>,
}

impl<K: Format> Job for Encode<'_, K> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        // All scales first: codes depend on scales, not scales on codes.
        let Encode { from, to, .. } = self;
        let from = &from[..to.len()];
        for (b, to) in to.iter_mut().enumerate() {
            let largest = largest(&from[b]);
            let least = if largest < K::MIN_SCALE { K::MIN_SCALE } else { largest };
            // The scale of zeros is 0, as memory is before the first step.
            let scale = if largest == 0.0 { 0.0 } else { least };
            let marked = || -largest_finite(&from[b]).max(K::MIN_SCALE);
            let [s0, s1, s2, s3, ..] = to;
            [*s0, *s1, *s2, *s3] = (if scale.is_finite() { scale } else { marked() }).to_le_bytes();
        }
        for (b, to) in to.iter_mut().enumerate() {
            let [s0, s1, s2, s3, codes @ ..] = to;
            let scale = f32::from_le_bytes([*s0, *s1, *s2, *s3]);
            if scale > 0.0 {
                encode_block(K::of(scale), &from[b], codes);
            } else if scale < 0.0 {
                encode_marked::<K>(scale, &from[b], codes);
            } else {
                codes.fill(0);
            }
        }
    }
}

#[inline(always)]
fn encode_block<K: Format>(code: K, from: &[f32; BLOCK], to: &mut [u8; BLOCK]) {
    for i in 0..BLOCK {
        to[i] = code.encode(from[i], i) as u8;
    }
}

/// Returns the largest magnitude, by bits: NaN is the largest.
#[inline(always)]
fn largest(block: &[f32; BLOCK]) -> f32 {
    let mut most = 0;
    for x in block {
        let size = (x.to_bits() & 0x7fff_ffff) as i32;
        most = if size > most { size } else { most };
    }
    f32::from_bits(most as u32)
}

macro_rules! with_code {
    ($simd:expr, $dtype:expr, $Job:ident { $from:expr, $to:expr }) => {
        match $dtype {
            DType::Root8 => dispatch($simd, $Job { from: $from, to: $to, code: PhantomData::<Root> }),
            DType::FourthRoot8 => dispatch($simd, $Job { from: $from, to: $to, code: PhantomData::<FourthRoot> }),
            DType::Log8 => dispatch($simd, $Job { from: $from, to: $to, code: PhantomData::<Log<true>> }),
            DType::UnsignedLog8 => dispatch($simd, $Job { from: $from, to: $to, code: PhantomData::<Log<false>> }),
            other => unreachable!("{other} has no code"),
        }
    };
}

/// Counts elements without significant digits at their block's scale.
///
/// These have the code next to zero; signed, also zeros among others.
pub(crate) fn floored(dtype: DType, from: &[u8]) -> usize {
    match dtype {
        DType::Root8 => count_floored::<Root>(from),
        DType::FourthRoot8 => count_floored::<FourthRoot>(from),
        DType::Log8 => count_floored::<Log<true>>(from),
        DType::UnsignedLog8 => count_floored::<Log<false>>(from),
        _ => 0,
    }
}

fn count_floored<K: Format>(from: &[u8]) -> usize {
    let of_block = |block: &[u8]| {
        let [s0, s1, s2, s3, codes @ ..] = block else { return 0 };
        let scale = f32::from_le_bytes([*s0, *s1, *s2, *s3]);
        let least = if scale < 0.0 { LEAST_FINITE } else { 1 };
        let is_floored = |size: u32| size == least || K::SIGNED && size == 0;
        if scale == 0.0 { 0 } else { codes.iter().filter(|code| is_floored(K::size(**code))).count() }
    };
    from.chunks(BLOCK + SCALE).map(of_block).sum()
}

/// Decodes blocks, the last perhaps shorter.
pub(crate) fn decode(simd: SimdLevel, dtype: DType, from: &[u8], to: &mut [f32]) {
    let ((blocks, short), (whole, rest)) = (from.as_chunks(), to.as_chunks_mut());
    with_code!(simd, dtype, Decode { blocks, whole });
    if !rest.is_empty() {
        let (mut block, mut numbers) = ([0; BLOCK + SCALE], [0.0; BLOCK]);
        block[..short.len()].copy_from_slice(short);
        with_code!(simd, dtype, Decode { &[block], core::slice::from_mut(&mut numbers) });
        rest.copy_from_slice(&numbers[..rest.len()]);
    }
}

/// Encodes into blocks, the last perhaps shorter.
pub(crate) fn encode(simd: SimdLevel, dtype: DType, from: &[f32], to: &mut [u8]) {
    let ((whole, rest), (blocks, short)) = (from.as_chunks(), to.as_chunks_mut());
    with_code!(simd, dtype, Encode { whole, blocks });
    if !rest.is_empty() {
        let (mut block, mut numbers) = ([0; BLOCK + SCALE], [0.0; BLOCK]);
        numbers[..rest.len()].copy_from_slice(rest);
        with_code!(simd, dtype, Encode { &[numbers], core::slice::from_mut(&mut block) });
        short.copy_from_slice(&block[..short.len()]);
    }
}

#[cfg(test)]
mod tests;
