//! Element functions on tiles, outside fused chains.

use core::marker::PhantomData;

use super::super::fused::{To, loop_on_tile};
use super::super::kernel::{Body, DROP, STORE, run};
use super::super::limits::MAX_SLOTS;
use super::super::slot::Access;
use super::super::{Contribution, PassRange, SlotList, Tile, sums};
use super::SlotArray;
use super::state::Arrays as StateArrays;
use crate::element::{DType, Real};

/// The maximum number of reductions of one loop.
pub(super) const MAX_PART_SUMS: usize = 4;

#[inline(always)]
pub(super) fn add_sums<C: Real>(terms: &mut [Contribution<C>], sums: &impl SlotArray<C::Wide>) {
    // Indexed, as in `Lanes::add`: unoptimized, an iterator takes longer than the additions.
    let (mut i, sums) = (0, sums.as_slice());
    while i < sums.len() {
        terms[i].sum = Some(sums[i]);
        i += 1;
    }
}

/// Returns a reducing part's inputs, update and parameter; in a loop that only [reduces](PassRange::deferred), the
/// recorded ones.
#[inline(always)]
pub(super) fn reducing_inputs<C: Real>(terms: &mut [Contribution<C>], range: PassRange, into: (C, C)) -> (C, C) {
    let [first, ..] = terms else { return into };
    let into = if range.deferred { first.inputs.unwrap_or(into) } else { into };
    first.inputs = Some(into);
    into
}

pub(super) trait OnElement<C: Real>: Copy {
    /// The state of one element; unread arrays are zero.
    type Slots: SlotArray<C>;
    type Sums: SlotArray<C::Wide>;
    /// The access to each array; none past the last.
    const ACCESS: &'static [Access];
    const REWRITES: bool;
    /// True if `apply` reads `p`, which is otherwise unspecified.
    const READS_PARAMS: bool;
    /// Must be `#[inline(always)]`, to be compiled for the caller's SIMD level.
    fn apply(self, slots: &mut Self::Slots, u: C, p: C) -> (C, Self::Sums);
}

/// Applies a function to one element's state. Unread arrays are zero; unwritten ones keep their value.
#[inline(always)]
pub(super) fn on_slots<C: Real, S: SlotArray<C>, T>(
    accesses: &[Access],
    slots: &mut [C],
    f: impl FnOnce(&mut S) -> T,
) -> T {
    if S::LEN == 0 {
        return f(S::of(&mut []));
    }
    let mut own = [C::zero(); MAX_SLOTS];
    let own = &mut own[..S::LEN];
    copy_slots(accesses, Access::reads, slots, own);
    let done = f(S::of(own));
    copy_slots(accesses, Access::writes, own, slots);
    done
}

#[inline(always)]
fn copy_slots<C: Real>(accesses: &[Access], may: fn(Access) -> bool, from: &[C], to: &mut [C]) {
    for slot in 0..from.len().min(to.len()) {
        if may(Access::of(accesses, slot)) {
            to[slot] = from[slot];
        }
    }
}

pub(super) const fn reads_any(all: &[Access]) -> bool {
    let mut slot = 0;
    while slot < all.len() && !all[slot].reads() {
        slot += 1;
    }
    slot < all.len()
}

struct ElementLoop<F>(PhantomData<F>);

impl<F: OnElement<C>, C: Real> Body<C> for ElementLoop<F> {
    type Kernel = F;
    const ARRAYS: usize = <F::Slots as SlotArray<C>>::LEN;
    const READS: [bool; MAX_SLOTS] = slots_where(F::ACCESS, false);
    const WRITES: [bool; MAX_SLOTS] = slots_where(F::ACCESS, true);
    const READS_PARAMS: bool = F::READS_PARAMS;
    const SUMS: usize = <F::Sums as SlotArray<C::Wide>>::LEN;

    #[inline(always)]
    fn apply(
        f: &F,
        _: (Option<DType>, bool),
        slots: &mut [C],
        u: C,
        p: C,
        terms: &mut [Contribution<C>; sums::MAX_SUMS],
    ) -> C {
        let (next, sums) = f.apply(F::Slots::of(slots), u, p);
        add_sums(terms, &sums);
        next
    }
}

const fn slots_where(all: &[Access], written: bool) -> [bool; MAX_SLOTS] {
    let (mut slots, mut slot) = ([false; MAX_SLOTS], 0);
    while slot < MAX_SLOTS {
        slots[slot] = if written { Access::of(all, slot).writes() } else { Access::of(all, slot).reads() };
        slot += 1;
    }
    slots
}

/// Applies a function to a tile, read in place, and adds its contributions to the reductions from index `sum`.
pub(super) fn each<F: OnElement<C>, C: Real>(f: F, arrays: &StateArrays, sum: usize, tile: &mut Tile<'_, C>) {
    each_with_params(f, arrays, sum, tile, tile.p);
}

/// As [`each`], with the given elements in place of the parameters.
pub(super) fn each_with_params<F: OnElement<C>, C: Real>(
    f: F,
    arrays: &StateArrays,
    sum: usize,
    tile: &mut Tile<'_, C>,
    p: &[C],
) {
    if arrays.has(tile.leaf) {
        SelectedLoop::<F, C>::TILE(f, arrays, sum, tile, p);
    }
}

/// The loop over a tile; see `passes`.
struct SelectedLoop<F, C>(PhantomData<(F, C)>);

type TileFn<F, C> = fn(F, &StateArrays, usize, &mut Tile<'_, C>, &[C]);

impl<F: OnElement<C>, C: Real> SelectedLoop<F, C> {
    const TILE: TileFn<F, C> = if C::RECORDS { Self::record } else { Self::through };

    fn record(f: F, arrays: &StateArrays, sum: usize, tile: &mut Tile<'_, C>, p: &[C]) {
        let p = p[0];
        tile.record(&arrays.recorded_array(tile.leaf), sum..sum + F::Sums::LEN, &|slots, u, terms| {
            let (next, sums) = on_slots::<C, F::Slots, _>(F::ACCESS, slots, |slots| f.apply(slots, u, p));
            add_sums(terms, &sums);
            if F::REWRITES { next } else { u }
        });
    }

    fn through(f: F, arrays: &StateArrays, sum: usize, tile: &mut Tile<'_, C>, p: &[C]) {
        let (simd, mut list) = (tile.simd, SlotList::new());
        if const { <F::Slots as SlotArray<C>>::LEN > 0 } {
            arrays.list_read(F::ACCESS, tile.leaf, &mut list);
        }
        let run = const { if F::REWRITES { run::<ElementLoop<F>, C, STORE> } else { run::<ElementLoop<F>, C, DROP> } };
        let to = if F::REWRITES { To::Updates } else { To::Discard };
        let added = loop_on_tile(&list, to, tile, Some(p), &mut |arrays| run(simd, &f, arrays));
        let own = &mut tile.sums[sum..][..F::Sums::LEN];
        own.iter_mut().zip(&added).for_each(|(sum, added)| *sum += added);
    }
}
