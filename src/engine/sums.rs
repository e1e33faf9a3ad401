//! Sums over elements: kept for each piece, added in the order of the pieces, whatever the number of threads.

use core::marker::PhantomData;

use super::isa::Set;
use super::{Shape, Stage};
use crate::element::{Real, Term};
pub(crate) use crate::numeric::sums::{LANES, squares, sum_tile};
use crate::numeric::sums::{add_counts, add_lanes};

/// The most sums that a fused chain may have.
pub(crate) const MOST_SUMS: usize = 8;

/// What a stretch adds to each sum of a chain.
pub(crate) type Added = [f64; MOST_SUMS];

pub(crate) const NOTHING: Added = [0.0; MOST_SUMS];

/// The sums of a stretch, and counts as sums: side by side in lanes, so that adding up can be vectorised and stays in
/// registers; see [`LANES`].
pub(crate) struct Lanes<const N: usize = MOST_SUMS> {
    sums: [[f64; LANES]; N],
    /// As whole numbers, of which twice as many go into a register.
    counts: [[u32; LANES]; N],
}

impl<const N: usize> Lanes<N> {
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Lanes { sums: [[0.0; LANES]; N], counts: [[0; LANES]; N] }
    }

    /// Whether there is a number to add is often known where this is compiled into a loop. Where it depends on the
    /// leaf, minus zero is added in its place, which changes no number: a condition would take the sums through memory.
    #[inline(always)]
    pub(crate) fn add<S: Stage, C: Real>(&mut self, lane: usize, terms: &[Term<C>; MOST_SUMS]) {
        let (mut i, sums) = (0, S::SHAPE.sums);
        while i < sums {
            let term = &terms[i];
            if S::SHAPE.counts(i) {
                debug_assert!(term.sum.is_none(), "what is counted is not added up");
                self.counts[i][lane] += term.count;
            } else {
                self.sums[i][lane] += term.number();
            }
            i += 1;
        }
    }

    /// Writes down what one element of a block adds, to be added with that of the others. Not `add` to a block of minus
    /// zeros: the loop of `lamb` had a quarter more instructions.
    #[inline(always)]
    pub(crate) fn set<S: Stage, C: Real>(&mut self, lane: usize, terms: &[Term<C>; MOST_SUMS]) {
        let (mut i, sums) = (0, S::SHAPE.sums);
        while i < sums {
            let term = &terms[i];
            if S::SHAPE.counts(i) {
                debug_assert!(term.sum.is_none(), "what is counted is not added up");
                self.counts[i][lane] = term.count;
            } else {
                self.sums[i][lane] = term.number();
            }
            i += 1;
        }
    }

    /// Adds what the elements of a block add, a register at a time. With one number after the other the compiler finds
    /// registers by itself, but among several sums it takes lanes of different ones together.
    #[inline(always)]
    pub(crate) fn add_block<S: Stage, I: Set>(&mut self, block: &Self) {
        let (mut i, sums) = (0, S::SHAPE.sums);
        while i < sums {
            if S::SHAPE.counts(i) {
                add_counts::<I>(&mut self.counts[i], &block.counts[i]);
            } else {
                add_lanes::<I>(&mut self.sums[i], &block.sums[i]);
            }
            i += 1;
        }
    }

    /// What a chain has no sums for is not looked at, so that there is nothing to clear either.
    #[inline(always)]
    pub(crate) fn total(&self, shape: &Shape) -> Added {
        let mut total = [0.0; MOST_SUMS];
        for (i, total) in total[..shape.sums].iter_mut().enumerate() {
            *total = match shape.counts(i) {
                true => self.counts[i].iter().sum::<u32>().into(),
                false => self.sums[i].iter().sum(),
            };
        }
        total
    }
}

/// Whether the loop of a pass adds up in a second loop over each block. Elements of `f32` fill half as many registers
/// as their sums, and a compiler takes as many elements together as the wider ones allow: in one loop all arithmetic
/// would be done on halves of registers. Where nothing is given out there is little arithmetic but that of the sums.
pub(super) const fn adds_later<S: Stage, C: Real>(drops: bool, to: usize) -> bool {
    !drops && S::SHAPE.adds_later_in(to) && size_of::<C>() < size_of::<f64>()
}

/// What went into the part that adds to sums in this pass.
#[inline(always)]
pub(super) fn went_into<S: Stage, C: Real>(terms: &[Term<C>; MOST_SUMS]) -> [C; 2] {
    let mut i = 0;
    while i < S::SHAPE.sums {
        if let Some((u, p)) = terms[i].went_in {
            return [u, p];
        }
        i += 1;
    }
    [C::zero(); 2]
}

/// The numbers of one element that belong to a member, of which there are so many, and those of the members after it.
/// Where it has none there is nothing to cut, which in builds that are not optimized takes longer than arithmetic.
#[inline(always)]
pub(super) fn cut_off<T>(numbers: &mut [T], many: usize) -> (&mut [T], &mut [T]) {
    if many == 0 { (&mut [], numbers) } else { numbers.split_at_mut(many) }
}

/// A job that adds up in lanes.
pub(crate) trait AddsUp {
    /// Must be `#[inline(always)]`, as [`Job::run`].
    fn run_with<const N: usize>(self, lanes: &mut Lanes<N>);
}

/// The ways to run a job, of which a constant chooses one; see "One of many" in [`kernel`](super::kernel).
struct Adding<S, J, const TO: usize>(PhantomData<(S, J)>);

impl<S: Stage, J: AddsUp, const TO: usize> Adding<S, J, TO> {
    const RUN: fn(J) -> Added = match if S::SHAPE.adds_in(TO) { S::SHAPE.sums } else { 0 } {
        0 => without_lanes::<J>,
        1 => in_lanes::<S, J, 1>,
        2 => in_lanes::<S, J, 2>,
        3 | 4 => in_lanes::<S, J, 4>,
        _ => in_lanes::<S, J, MOST_SUMS>,
    };
}

/// Runs a job with as many lanes as a pass has sums, and gives back what it added up.
#[inline(always)]
pub(crate) fn adding_up<S: Stage, J: AddsUp, const TO: usize>(job: J) -> Added {
    Adding::<S, J, TO>::RUN(job)
}

#[inline(always)]
fn without_lanes<J: AddsUp>(job: J) -> Added {
    job.run_with::<0>(&mut Lanes::new());
    NOTHING
}

#[inline(always)]
fn in_lanes<S: Stage, J: AddsUp, const N: usize>(job: J) -> Added {
    let mut lanes = Lanes::<N>::new();
    job.run_with(&mut lanes);
    lanes.total(&S::SHAPE)
}
