//! One function on each element of a tile and its state arrays, outside a fused chain.

use core::marker::PhantomData;

use super::super::fused::{To, loop_on_tile};
use super::super::kernel::{Body, DROP, GIVE, run};
use super::super::limits::MOST_SLOTS;
use super::super::slot::Access;
use super::super::{SlotList, Span, Term, Tile, sums};
use super::SlotArray;
use super::state::Arrays as StateArrays;
use crate::element::{DType, Real};

/// The most sums of one loop.
pub(super) const MOST_PART_SUMS: usize = 4;

/// Says what an element of a fused loop adds up.
#[inline(always)]
pub(super) fn add_sums<C: Real>(terms: &mut [Term<C>], sums: &impl SlotArray<C::Wide>) {
    // By number: in a build that is not optimized an iterator takes longer than what is added up. So does `Lanes::add`.
    let (mut i, sums) = (0, sums.as_slice());
    while i < sums.len() {
        terms[i].sum = Some(sums[i]);
        i += 1;
    }
}

/// What goes into a part that adds to these sums: the update and the parameter. In a loop that only
/// [adds to them](Span::later), that is what did when all else was done.
#[inline(always)]
pub(super) fn goes_in<C: Real>(terms: &mut [Term<C>], span: Span, into: (C, C)) -> (C, C) {
    let [first, ..] = terms else { return into };
    let into = if span.later { first.went_in.unwrap_or(into) } else { into };
    first.went_in = Some(into);
    into
}

/// What is done to one element.
pub(super) trait OnElement<C: Real>: Copy {
    /// The state of one element. What is not read is zero.
    type Slots: SlotArray<C>;
    /// What is added up.
    type Sums: SlotArray<C::Wide>;
    /// What is done to each state array; those past the last are not looked at.
    const ACCESS: &'static [Access];
    /// Whether the update is another one afterwards.
    const REWRITES: bool;
    /// Must be `#[inline(always)]`, so that it takes on the instruction set of its caller.
    fn apply(self, slots: &mut Self::Slots, u: C, p: C) -> (C, Self::Sums);
}

/// Does something to the state of one element: what is not read is zero, and what is not written stays.
#[inline(always)]
pub(super) fn on_slots<C: Real, S: SlotArray<C>, T>(
    accesses: &[Access],
    slots: &mut [C],
    f: impl FnOnce(&mut S) -> T,
) -> T {
    if S::LEN == 0 {
        return f(S::of(&mut []));
    }
    let mut own = [C::zero(); MOST_SLOTS];
    let own = &mut own[..S::LEN];
    bring(accesses, Access::reads, slots, own);
    let done = f(S::of(own));
    bring(accesses, Access::writes, own, slots);
    done
}

/// Copies the numbers of those arrays that something may be done to.
#[inline(always)]
fn bring<C: Real>(accesses: &[Access], may: fn(Access) -> bool, from: &[C], to: &mut [C]) {
    for slot in 0..from.len().min(to.len()) {
        if may(Access::of(accesses, slot)) {
            to[slot] = from[slot];
        }
    }
}

/// Whether any array is read.
pub(super) const fn reads_any(all: &[Access]) -> bool {
    let mut slot = 0;
    while slot < all.len() && !all[slot].reads() {
        slot += 1;
    }
    slot < all.len()
}

/// A function on each element, as the block loop runs it.
struct Each<F>(PhantomData<F>);

impl<F: OnElement<C>, C: Real> Body<C> for Each<F> {
    type Kernel = F;
    const ARRAYS: usize = <F::Slots as SlotArray<C>>::LEN;
    const READS: [bool; MOST_SLOTS] = slots_where(F::ACCESS, false);
    const WRITES: [bool; MOST_SLOTS] = slots_where(F::ACCESS, true);
    const READS_PARAMS: bool = true;
    const SUMS: usize = <F::Sums as SlotArray<C::Wide>>::LEN;

    #[inline(always)]
    fn apply(
        f: &F,
        _: (Option<DType>, bool),
        slots: &mut [C],
        u: C,
        p: C,
        terms: &mut [Term<C>; sums::MOST_SUMS],
    ) -> C {
        let (next, sums) = f.apply(F::Slots::of(slots), u, p);
        add_sums(terms, &sums);
        next
    }
}

/// The state arrays that are read, or those that are written.
const fn slots_where(all: &[Access], written: bool) -> [bool; MOST_SLOTS] {
    let (mut slots, mut slot) = ([false; MOST_SLOTS], 0);
    while slot < MOST_SLOTS {
        slots[slot] = if written { Access::of(all, slot).writes() } else { Access::of(all, slot).reads() };
        slot += 1;
    }
    slots
}

/// Does it to the elements of a tile, and adds to the sums that begin at `sum`. The updates are read where they are.
pub(super) fn each<F: OnElement<C>, C: Real>(f: F, arrays: &StateArrays, sum: usize, tile: &mut Tile<'_, C>) {
    each_beside(f, arrays, sum, tile, tile.p);
}

/// The same with other elements in the place of the parameters.
pub(super) fn each_beside<F: OnElement<C>, C: Real>(
    f: F,
    arrays: &StateArrays,
    sum: usize,
    tile: &mut Tile<'_, C>,
    p: &[C],
) {
    if arrays.has(tile.leaf) {
        Ways::<F, C>::TILE(f, arrays, sum, tile, p);
    }
}

/// The two ways through a tile, of which a type of numbers has one; see `passes`.
struct Ways<F, C>(PhantomData<(F, C)>);

/// As [`each_beside`].
type TileFn<F, C> = fn(F, &StateArrays, usize, &mut Tile<'_, C>, &[C]);

impl<F: OnElement<C>, C: Real> Ways<F, C> {
    const TILE: TileFn<F, C> = if C::RECORDS { Self::record } else { Self::through };

    fn record(f: F, arrays: &StateArrays, sum: usize, tile: &mut Tile<'_, C>, p: &[C]) {
        let p = p[0];
        tile.record(&arrays.in_record(tile.leaf), sum..sum + F::Sums::LEN, &|slots, u, terms| {
            let (next, sums) = on_slots::<C, F::Slots, _>(F::ACCESS, slots, |slots| f.apply(slots, u, p));
            add_sums(terms, &sums);
            if F::REWRITES { next } else { u }
        });
    }

    fn through(f: F, arrays: &StateArrays, sum: usize, tile: &mut Tile<'_, C>, p: &[C]) {
        let (isa, mut list) = (tile.isa, SlotList::new());
        if const { <F::Slots as SlotArray<C>>::LEN > 0 } {
            arrays.list_read(F::ACCESS, tile.leaf, &mut list);
        }
        let run = const { if F::REWRITES { run::<Each<F>, C, GIVE> } else { run::<Each<F>, C, DROP> } };
        let to = if F::REWRITES { To::Updates } else { To::Nowhere };
        let added = loop_on_tile(&list, to, tile, Some(p), &mut |arrays| run(isa, &f, arrays));
        let own = &mut tile.sums[sum..][..F::Sums::LEN];
        own.iter_mut().zip(&added).for_each(|(sum, added)| *sum += added);
    }
}
