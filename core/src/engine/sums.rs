//! Reductions over elements: by chunk, added in the order of chunks for any number of threads.

use super::simd::SimdType;
use crate::element::{Contribution, Real};
pub(crate) use crate::numeric::sums::LANES;
pub(crate) use crate::numeric::sums::sum_tile;
use crate::numeric::sums::{add_counts, add_lanes};

/// The maximum number of reductions of a fused chain.
pub(crate) const MAX_SUMS: usize = 8;

/// A range's contribution to each reduction.
pub(crate) type Added = [f64; MAX_SUMS];

pub(crate) const NOTHING: Added = [0.0; MAX_SUMS];

/// The sums and counts of a range in [`LANES`], so that additions are vectorized and stay in registers.
pub(crate) struct Lanes<const N: usize = MAX_SUMS> {
    sums: [[f64; LANES]; N],
    /// Integers: twice as many fit in a register as `f64`.
    counts: [[u32; LANES]; N],
}

impl<const N: usize> Lanes<N> {
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Lanes { sums: [[0.0; LANES]; N], counts: [[0; LANES]; N] }
    }

    /// Records an element's contributions for [`add_block`](Self::add_block). A missing contribution is minus zero,
    /// which changes no sum: a branch would move the sums through memory. LLVM removes additions of known minus zeros.
    #[inline(always)]
    pub(super) fn set<C: Real>(&mut self, sums: usize, counts: u32, lane: usize, terms: &[Contribution<C>; MAX_SUMS]) {
        let mut i = 0;
        while i < sums {
            let term = &terms[i];
            if counts >> i & 1 == 1 {
                debug_assert!(term.sum.is_none(), "a count has no sum");
                self.counts[i][lane] = term.count;
            } else {
                self.sums[i][lane] = term.number();
            }
            i += 1;
        }
    }

    #[inline(always)]
    pub(super) fn add<C: Real>(&mut self, sums: usize, counts: u32, lane: usize, terms: &[Contribution<C>; MAX_SUMS]) {
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

    /// Adds a block's contributions in explicit vector registers: with several sums LLVM would combine lanes of
    /// different sums.
    #[inline(always)]
    pub(super) fn add_block<I: SimdType>(&mut self, sums: usize, counts: u32, block: &Self) {
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

    /// Returns the first `sums` totals. The others need no clearing.
    #[inline(always)]
    pub(super) fn total(&self, sums: usize, counts: u32) -> Added {
        let mut total = [0.0; MAX_SUMS];
        for (i, total) in total[..sums].iter_mut().enumerate() {
            *total = match counts >> i & 1 == 1 {
                true => self.counts[i].iter().sum::<u32>().into(),
                false => self.sums[i].iter().sum(),
            };
        }
        total
    }
}

/// Splits off a member's `many` elements from those of later members. The branch for none saves time in unoptimized
/// builds.
#[inline(always)]
pub(super) fn split_sums<T>(numbers: &mut [T], many: usize) -> (&mut [T], &mut [T]) {
    if many == 0 { (&mut [], numbers) } else { numbers.split_at_mut(many) }
}
