//! Blocks of numbers of 16 bits, brought into registers as `f32` and back.

use core::marker::PhantomData;
use core::ops::Range;

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use super::isa::{Isa, Job, Set, dispatch};
use super::kernel::{MOST_SLOTS, Slots};
use super::sums::{Added, NOTHING};
use super::written::add_rounded;
use crate::element::{ByReal, DType, Element, Real, SixteenBits};
use crate::memory::RawSlice;
use crate::numeric::half_floats::{self, BLOCK, are_converted};
use crate::tree::add_update;

/// Which of the two types it is, known where a loop runs. There is a loop for each: in one for both, numbers went
/// through memory where it chose between the two.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Format {
    Bf16,
    F16,
}

/// Runs `$body` with the type alias `$H` standing for the type of a [`Format`]; in a loop for an instruction set `$I`
/// only if there is one.
macro_rules! with_format {
    (in $I:ty, $format:expr, $H:ident => $body:expr) => {
        match $format {
            Format::F16 if const { !are_converted(<$I>::ISA) } => unreachable!("there is no such loop"),
            format => with_format!(format, $H => $body),
        }
    };
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

pub(super) use with_format;

impl Format {
    /// That of a type, if an instruction set has loops for it.
    pub(crate) fn of(dtype: DType, isa: Isa) -> Option<Format> {
        match dtype {
            DType::Bf16 => Some(Format::Bf16),
            DType::F16 if are_converted(isa) => Some(Format::F16),
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
}

/// What a pass starts from on a leaf of 16 bits.
#[derive(Clone, Copy)]
pub(crate) enum Source<'a> {
    /// Gradients, as bits.
    Gradients(&'a [u16]),
    /// What an earlier pass stored.
    Stored(&'a [f32]),
}

impl<'a> Source<'a> {
    pub(super) fn part(self, range: Range<usize>) -> Source<'a> {
        match self {
            Source::Gradients(all) => Source::Gradients(&all[range]),
            Source::Stored(all) => Source::Stored(&all[range]),
        }
    }

    /// Which of the two it is, is known where a loop is compiled; the other is empty.
    #[inline(always)]
    pub(super) fn both(self) -> (&'a [u16], &'a [f32]) {
        match self {
            Source::Gradients(all) => (all, &[]),
            Source::Stored(all) => (&[], all),
        }
    }
}

/// A loop over whole blocks: what it starts from, parameters, state arrays.
type InBlocksFn<'a> = dyn FnMut(Source<'_>, &mut [u16], &mut Slots<'_, f32>) -> Added + 'a;

/// Runs a loop over whole blocks on a stretch of any length. What is left after the last block is brought into one that
/// its first element fills up, so that the loop sees no numbers that are not there.
pub(super) fn in_blocks(g: Source<'_>, p: &mut [u16], slots: &mut Slots<'_, f32>, run: &mut InBlocksFn<'_>) -> Added {
    let done = p.len() / BLOCK * BLOCK;
    let mut added = NOTHING;
    if done > 0 {
        added = run(g, p, slots);
    }
    if done < p.len() {
        let (mut block, mut rows) = ([0; BLOCK], [[0.0; BLOCK]; MOST_SLOTS]);
        fill_up(&mut block, &p[done..]);
        rows.iter_mut().zip(&*slots).for_each(|(row, slot)| fill_up(row, slot.get(done..).unwrap_or_default()));
        let (mut bits, mut wide) = ([0; BLOCK], [0.0; BLOCK]);
        let g = match g {
            Source::Gradients(all) => {
                fill_up(&mut bits, &all[done..]);
                Source::Gradients(&bits)
            }
            Source::Stored(all) => {
                fill_up(&mut wide, &all[done..]);
                Source::Stored(&wide)
            }
        };
        let of_block = run(g, &mut block, &mut rows.each_mut().map(|row| &mut row[..]));
        debug_assert_eq!(of_block, NOTHING, "what is added up is added up by whole tiles");
        let left = p.len() - done;
        p[done..].copy_from_slice(&block[..left]);
        let used = slots.iter_mut().filter(|slot| slot.len() > done);
        used.zip(&rows).for_each(|(slot, row)| slot[done..].copy_from_slice(&row[..left]));
    }
    added
}

fn fill_up<T: Copy>(block: &mut [T; BLOCK], from: &[T]) {
    if let Some(first) = from.first() {
        block.fill(*first);
        block[..from.len()].copy_from_slice(from);
    }
}

/// A stretch of parameters of 16 bits, to add updates to.
pub(super) struct Parameters<'a, H>(pub(super) Isa, pub(super) &'a mut [H]);

impl<'a, H: InBlocks> ByReal for Parameters<'a, H>
where
    [H]: HalfFloatSliceExt,
{
    type Argument<C: Real> = &'a [C];
    type Output = ();
    fn single(self, u: &[f32]) {
        dispatch(self.0, Add::<H>(u, self.1.reinterpret_cast_mut(), PhantomData));
    }
    // Arithmetic on these leaves is in `f32`.
    fn double(self, u: &[f64]) {
        self.1.iter_mut().zip(u).for_each(|(p, u)| *p = add_rounded(*p, *u));
    }
    fn recorded<C: Real>(self, _: &[C], _: fn(C) -> u32, _: fn(u32) -> C) {}
}

/// Updates, and the bits of parameters.
struct Add<'a, H>(&'a [f32], &'a mut [u16], PhantomData<H>);

impl<H: InBlocks> Job for Add<'_, H> {
    type Output = ();
    fn run(self) {
        unreachable!("it is run on a set")
    }
    #[inline(always)]
    #[allow(unsafe_code, reason = "the processor's own conversions")]
    fn run_on<S: Set>(self) {
        let Add(u, p, _) = self;
        let (u, u_left) = u[..p.len()].as_chunks();
        let (p, p_left) = p.as_chunks_mut();
        for b in 0..p.len() {
            // SAFETY: `dispatch` has chosen the instruction set.
            unsafe { H::add_block::<S>(u[b], &mut p[b]) };
        }
        if !p_left.is_empty() {
            let (mut last, mut bits) = ([0.0; BLOCK], [0; BLOCK]);
            last[..u_left.len()].copy_from_slice(u_left);
            bits[..p_left.len()].copy_from_slice(p_left);
            // SAFETY: as above.
            unsafe { H::add_block::<S>(last, &mut bits) };
            p_left.copy_from_slice(&bits[..p_left.len()]);
        }
    }
}

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
