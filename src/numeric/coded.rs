//! Numbers in 8 bits: blocks of 256, each with the size of its largest finite number as an `f32` before the codes.
//!
//! The scale of a block with NaN or infinities has its sign bit set. In such a block the codes of size 1 stand for
//! infinities and those of size 2 for NaN, so that each harms its own element only.
//!
//! Whatever a code cannot say exactly goes to one of the two codes next to it, with chances in proportion to how near
//! they are, in the root where codes are roots: a mean that takes in a thousandth of a square each step would never
//! come down again if it were always rounded to the nearest. The chances are drawn from the last bits of the number
//! itself, and its place. So no key is needed, the result is the same on each machine, and a number that a code says
//! exactly stays as it is.

use core::marker::PhantomData;

use super::isa::{Isa, Job, dispatch};
use crate::element::{CODED_BLOCK as BLOCK, CODED_SCALE as SCALE, DType};

/// One block: its scale and its codes.
type Block = [u8; BLOCK + SCALE];

/// Sizes of codes in a block whose scale is marked: infinities, NaN, and the least of all other numbers.
const INFINITE: u32 = 1;
const NAN: u32 = 2;
const LEAST_FINITE: u32 = 3;

/// How numbers of a block become codes.
trait Code: Copy {
    /// Whether the highest bit of a code tells a sign.
    const SIGNED: bool;
    /// The size of a code without its sign.
    fn size(code: u8) -> u32;
    /// The code of this size, negative if it is said and there are signs.
    fn with_sign(size: u32, negative: bool) -> u32;
    /// The least that a scale can be, so that what is worked out from it is a normal number.
    const LEAST: f32;
    fn of(scale: f32) -> Self;
    fn decode(self, code: u8) -> f32;
    /// Nothing, for what cannot be negative and is.
    fn encode(self, x: f32, place: usize) -> u32;
}

/// Where in a step between two codes rounding goes up: 8 bits, of the number and its place in the block. Of numbers
/// with few bits the upper ones count too. All places of a block together have each of the 256 once, so that of equal
/// numbers as many go up as should.
#[inline(always)]
fn chance(x: f32, place: usize) -> u32 {
    (x.to_bits() ^ x.to_bits() >> 15 ^ PLACES[place]) & 0xff
}

/// What a place in a block has to do with it. A table, since products of whole numbers take long, and SSE2 has no
/// instruction for them.
static PLACES: [u32; BLOCK] = {
    let mut places = [0; BLOCK];
    let mut place = 0;
    while place < BLOCK {
        places[place] = (place as u32 * 167) & 0xff;
        place += 1;
    }
    places
};

/// The whole number that is nearest to `x`, which is not negative and less than 2²².
#[inline(always)]
fn whole(x: f32) -> u32 {
    (x + 8_388_608.0).to_bits() & 0x7f_ffff
}

/// `scale·(k/127)²` with the sign of `k`.
#[derive(Clone, Copy)]
struct Root {
    scale: f32,
    inverse: f32,
}

impl Code for Root {
    const SIGNED: bool = true;
    fn size(code: u8) -> u32 {
        (code as i8).unsigned_abs().into()
    }
    fn with_sign(size: u32, negative: bool) -> u32 {
        if negative { size.wrapping_neg() } else { size }
    }
    const LEAST: f32 = f32::MIN_POSITIVE;
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
        let size = (whole((x.abs() * self.inverse).sqrt() * (127.0 * 256.0)) + chance(x, place)) >> 8;
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

impl Code for FourthRoot {
    const SIGNED: bool = false;
    fn size(code: u8) -> u32 {
        code.into()
    }
    fn with_sign(size: u32, _: bool) -> u32 {
        size
    }
    const LEAST: f32 = f32::MIN_POSITIVE;
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
        // What is less becomes the first code after nothing, whatever the chance, and so does this: nothing is for what
        // is nothing.
        const LEAST: f32 = 1.0 / (255.0 * 255.0 * 255.0 * 255.0);
        let part = x * self.inverse;
        let part = if part > LEAST { part } else { LEAST };
        let size = (whole(part.sqrt().sqrt() * (255.0 * 256.0)) + chance(x, place)) >> 8;
        if x.to_bits() as i32 > 0 { size } else { 0 }
    }
}

/// The bits of an `f32` from the third of its fraction on up, less a number that makes the largest of the block 127 or,
/// without a sign, 255: eighths of an octave, in each octave evenly. Zero is none of them.
#[derive(Clone, Copy)]
struct Log<const SIGNED: bool> {
    /// The bits that the code 0 would stand for.
    base: i32,
}

/// How many bits of an `f32` are below those of such a code.
const BELOW: u32 = 20;

impl<const SIGNED: bool> Code for Log<SIGNED> {
    const SIGNED: bool = SIGNED;
    fn size(code: u8) -> u32 {
        if SIGNED { code & 127 } else { code }.into()
    }
    fn with_sign(size: u32, negative: bool) -> u32 {
        if SIGNED && negative { size | 128 } else { size }
    }
    const LEAST: f32 = f32::from_bits((if SIGNED { 128 } else { 256 }) << BELOW);
    #[inline(always)]
    fn of(scale: f32) -> Log<SIGNED> {
        Log { base: scale.to_bits() as i32 - ((if SIGNED { 127 } else { 255 }) << BELOW) }
    }
    #[inline(always)]
    fn decode(self, code: u8) -> f32 {
        let (size, sign) = if SIGNED { (code & 127, u32::from(code & 128) << 24) } else { (code, 0) };
        let bits = if size == 0 { 0 } else { self.base + (i32::from(size) << BELOW) };
        f32::from_bits(bits as u32 | sign)
    }
    #[inline(always)]
    fn encode(self, x: f32, place: usize) -> u32 {
        let bits = x.to_bits() as i32;
        let up = ((chance(x, place) as i32) << (BELOW - 8)) + (1 << (BELOW - 9));
        let size = ((bits & i32::MAX) - self.base + up) >> BELOW;
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

impl<K: Code> Job for Decode<'_, K> {
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

/// A function of its own, as `encode_block` is: arguments are known not to overlap, fields are not, and then the loop
/// is compiled a second time, for numbers one by one.
#[inline(always)]
fn decode_block<K: Code>(code: K, from: &[u8; BLOCK], to: &mut [f32; BLOCK]) {
    for i in 0..BLOCK {
        to[i] = code.decode(from[i]);
    }
}

/// A block with numbers that are not finite. One whose scale is not finite is NaN throughout.
#[cold]
#[inline(never)]
fn decode_marked<K: Code>(scale: f32, from: &[u8; BLOCK], to: &mut [f32; BLOCK]) {
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

/// As [`encode_block`], of a block with numbers that are not finite.
#[cold]
#[inline(never)]
fn encode_marked<K: Code>(scale: f32, from: &[f32; BLOCK], to: &mut [u8; BLOCK]) {
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

/// The scale of a block with numbers that are not finite, before it is marked: the largest of the others.
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

impl<K: Code> Job for Encode<'_, K> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        // All scales first: the codes of a block wait for its scale, but no scale waits for codes.
        let Encode { from, to, .. } = self;
        let from = &from[..to.len()];
        for (b, to) in to.iter_mut().enumerate() {
            let largest = largest(&from[b]);
            let least = if largest < K::LEAST { K::LEAST } else { largest };
            // Of zeros as the memory was before the first step.
            let scale = if largest == 0.0 { 0.0 } else { least };
            let marked = || -largest_finite(&from[b]).max(K::LEAST);
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
fn encode_block<K: Code>(code: K, from: &[f32; BLOCK], to: &mut [u8; BLOCK]) {
    for i in 0..BLOCK {
        to[i] = code.encode(from[i], i) as u8;
    }
}

/// The size of the largest number of a block, by its bits, so that NaN is the largest of all.
#[inline(always)]
fn largest(block: &[f32; BLOCK]) -> f32 {
    let mut most = 0;
    for x in block {
        let size = (x.to_bits() & 0x7fff_ffff) as i32;
        most = if size > most { size } else { most };
    }
    f32::from_bits(most as u32)
}

/// Runs `$job` with the code of a [`DType`].
macro_rules! with_code {
    ($isa:expr, $dtype:expr, $Job:ident { $from:expr, $to:expr }) => {
        match $dtype {
            DType::Root8 => dispatch($isa, $Job { from: $from, to: $to, code: PhantomData::<Root> }),
            DType::FourthRoot8 => dispatch($isa, $Job { from: $from, to: $to, code: PhantomData::<FourthRoot> }),
            DType::Log8 => dispatch($isa, $Job { from: $from, to: $to, code: PhantomData::<Log<true>> }),
            DType::UnsignedLog8 => dispatch($isa, $Job { from: $from, to: $to, code: PhantomData::<Log<false>> }),
            other => unreachable!("{other} has no code"),
        }
    };
}

/// How many numbers the scales of their blocks leave no digits: those that have the code next to zero, and of numbers
/// with signs those that are zero among others.
pub(crate) fn floored(dtype: DType, from: &[u8]) -> usize {
    match dtype {
        DType::Root8 => count_floored::<Root>(from),
        DType::FourthRoot8 => count_floored::<FourthRoot>(from),
        DType::Log8 => count_floored::<Log<true>>(from),
        DType::UnsignedLog8 => count_floored::<Log<false>>(from),
        _ => 0,
    }
}

fn count_floored<K: Code>(from: &[u8]) -> usize {
    let of_block = |block: &[u8]| {
        let [s0, s1, s2, s3, codes @ ..] = block else { return 0 };
        let scale = f32::from_le_bytes([*s0, *s1, *s2, *s3]);
        let least = if scale < 0.0 { LEAST_FINITE } else { 1 };
        let is_floored = |size: u32| size == least || K::SIGNED && size == 0;
        if scale == 0.0 { 0 } else { codes.iter().filter(|code| is_floored(K::size(**code))).count() }
    };
    from.chunks(BLOCK + SCALE).map(of_block).sum()
}

/// Reads so many numbers as there is room for. `from` has their blocks, the last perhaps a short one.
pub(crate) fn decode(isa: Isa, dtype: DType, from: &[u8], to: &mut [f32]) {
    let ((blocks, short), (whole, rest)) = (from.as_chunks(), to.as_chunks_mut());
    with_code!(isa, dtype, Decode { blocks, whole });
    if !rest.is_empty() {
        let (mut block, mut numbers) = ([0; BLOCK + SCALE], [0.0; BLOCK]);
        block[..short.len()].copy_from_slice(short);
        with_code!(isa, dtype, Decode { &[block], core::slice::from_mut(&mut numbers) });
        rest.copy_from_slice(&numbers[..rest.len()]);
    }
}

/// Writes numbers, whose blocks `to` has, the last perhaps a short one.
pub(crate) fn encode(isa: Isa, dtype: DType, from: &[f32], to: &mut [u8]) {
    let ((whole, rest), (blocks, short)) = (from.as_chunks(), to.as_chunks_mut());
    with_code!(isa, dtype, Encode { whole, blocks });
    if !rest.is_empty() {
        let (mut block, mut numbers) = ([0; BLOCK + SCALE], [0.0; BLOCK]);
        numbers[..rest.len()].copy_from_slice(rest);
        with_code!(isa, dtype, Encode { &[numbers], core::slice::from_mut(&mut block) });
        short.copy_from_slice(&block[..short.len()]);
    }
}

#[cfg(test)]
mod tests;
