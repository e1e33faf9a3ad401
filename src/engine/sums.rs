//! Sums over elements: kept for each piece, added in the order of the pieces, whatever the number of threads.

use super::isa::Set;
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

    /// Writes down what one element of a block adds, to be added with that of the others. Whether there is a number to
    /// add is often known where this is compiled into a loop. Where it depends on the leaf, it is minus zero, which
    /// changes no number: a condition would take the sums through memory.
    #[inline(always)]
    pub(super) fn set<C: Real>(&mut self, sums: usize, counts: u32, lane: usize, terms: &[Term<C>; MOST_SUMS]) {
        let mut i = 0;
        while i < sums {
            let term = &terms[i];
            if counts >> i & 1 == 1 {
                debug_assert!(term.sum.is_none(), "what is counted is not added up");
                self.counts[i][lane] = term.count;
            } else {
                self.sums[i][lane] = term.number();
            }
            i += 1;
        }
    }

    /// Adds what one element adds.
    #[inline(always)]
    pub(super) fn add<C: Real>(&mut self, sums: usize, counts: u32, lane: usize, terms: &[Term<C>; MOST_SUMS]) {
        let mut i = 0;
        while i < sums {
            if counts >> i & 1 == 1 {
                self.counts[i][lane] += terms[i].count;
            } else {
                self.sums[i][lane] += terms[i].number();
            }
            i += 1;
        }
    }

    /// Adds what the elements of a block add, a register at a time. With one number after the other the compiler finds
    /// registers by itself, but among several sums it takes lanes of different ones together.
    #[inline(always)]
    pub(super) fn add_block<I: Set>(&mut self, sums: usize, counts: u32, block: &Self) {
        let mut i = 0;
        while i < sums {
            if counts >> i & 1 == 1 {
                add_counts::<I>(&mut self.counts[i], &block.counts[i]);
            } else {
                add_lanes::<I>(&mut self.sums[i], &block.sums[i]);
            }
            i += 1;
        }
    }

    /// What a chain has no sums for is not looked at, so that there is nothing to clear either.
    #[inline(always)]
    pub(super) fn total(&self, sums: usize, counts: u32) -> Added {
        let mut total = [0.0; MOST_SUMS];
        for (i, total) in total[..sums].iter_mut().enumerate() {
            *total = match counts >> i & 1 == 1 {
                true => self.counts[i].iter().sum::<u32>().into(),
                false => self.sums[i].iter().sum(),
            };
        }
        total
    }
}

/// The numbers of one element that belong to a member, of which there are so many, and those of the members after it.
/// Where it has none there is nothing to cut, which in builds that are not optimized takes longer than arithmetic.
#[inline(always)]
pub(super) fn cut_off<T>(numbers: &mut [T], many: usize) -> (&mut [T], &mut [T]) {
    if many == 0 { (&mut [], numbers) } else { numbers.split_at_mut(many) }
}
