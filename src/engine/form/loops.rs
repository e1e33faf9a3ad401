//! One function on each element of a tile and its state arrays, outside a fused chain.

use core::marker::PhantomData;

use super::super::fused::with_list;
use super::super::isa::{Job, dispatch_chain};
use super::super::kernel::{MOST_SLOTS, Slots, no_slots};
use super::super::sums::LANES;
use super::super::{SlotList, Span, Term, Tile};
use super::SlotArray;
use super::state::Arrays;
use crate::element::Real;
use crate::numeric::opaque::{Always, alone, hidden};

/// What a pass does to a state array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Access {
    /// It does not look at it.
    None,
    /// It reads it.
    Read,
    /// It reads and writes it.
    Write,
}

impl Access {
    /// What is done to the array of this number; to those not listed nothing.
    pub(super) const fn of(all: &[Access], slot: usize) -> Access {
        if slot < all.len() { all[slot] } else { Access::None }
    }

    pub(super) const fn reads(self) -> bool {
        !matches!(self, Access::None)
    }

    /// How many times the array's bytes go through memory.
    pub(super) const fn times(self) -> usize {
        self as usize
    }

    pub(super) const fn writes(self) -> bool {
        matches!(self, Access::Write)
    }
}

/// The most sums of one loop.
pub(super) const MOST_SUMS: usize = 4;

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

/// The sums of a stretch: side by side in lanes, so that adding up can be vectorised; see [`LANES`].
type Lanes = [[f64; LANES]; MOST_SUMS];

#[inline(always)]
fn add<W: Real>(lanes: &mut Lanes, lane: usize, sums: &impl SlotArray<W>) {
    for (sum, x) in sums.as_slice().iter().enumerate() {
        lanes[sum][lane] += x.as_f64();
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

const fn access<F: OnElement<C>, C: Real>(slot: usize) -> Access {
    Access::of(F::ACCESS, slot)
}

/// A loop over a stretch.
type LoopFn<F, C> = fn(F, &[C], &mut [C], &[C], Slots<'_, C>, &mut Lanes);

/// The loops, of which one is compiled.
struct Loops<F, C>(PhantomData<(F, C)>);

/// The loops, once for each number of state arrays: arguments are known not to overlap, and fields of a struct are not
/// (see `kernel`). That is known of arguments themselves, not of what is cut off them in here: the lengths are checked
/// instead. Where it is not known, the sums go through memory. `to` is empty unless the updates are rewritten, and an
/// array unless it is read. The first of each pair is for whole blocks, the other for what is left.
macro_rules! loops {
    ($($all:ident $blocks:ident $left:ident $n:literal ($($s:ident $i:tt),*);)*) => {
    /// The loop for as many arrays as there are: a constant chooses it; see "One of many" in `kernel`.
    impl<F: OnElement<C>, C: Real> Loops<F, C> {
        const RUN: LoopFn<F, C> = match <F::Slots as SlotArray<C>>::LEN {
            $($n => $all::<F, C>,)*
            _ => unreachable!(),
        };
    }

    $(
        #[inline(always)]
        fn $all<F: OnElement<C>, C: Real>(
            f: F, from: &[C], to: &mut [C], p: &[C], [$($s,)* ..]: Slots<'_, C>, lanes: &mut Lanes,
        ) {
            let (from, to, p) = (from.as_chunks(), to.as_chunks_mut(), p.as_chunks());
            $(let $s = $s.as_chunks_mut();)*
            $blocks(f, from.0, to.0, p.0, $($s.0,)* lanes);
            $left(f, from.1, to.1, p.1, $($s.1,)* lanes);
        }

        #[inline(always)]
        #[allow(clippy::too_many_arguments, unused_variables, reason = "arguments do not overlap; some have no array")]
        fn $blocks<F: OnElement<C>, C: Real>(
            f: F,
            from: &[[C; LANES]],
            to: &mut [[C; LANES]],
            p: &[[C; LANES]],
            $($s: &mut [[C; LANES]],)*
            lanes: &mut Lanes,
        ) {
            let n = from.len();
            assert!(p.len() == n && (to.len() == n || !F::REWRITES));
            assert!(true $(&& ($s.len() == n || const { !access::<F, C>($i).reads() }))*);
            let always = Always::<C>::new();
            for b in 0..n {
                let b = alone(b, n);
                for i in 0..LANES {
                    let mut slots = [$(if const { access::<F, C>($i).reads() } { $s[b][i] } else { C::zero() }),*];
                    let (next, sums) = f.apply(F::Slots::of(&mut slots), from[b][i], p[b][i]);
                    if F::REWRITES {
                        to[b][i] = next;
                    }
                    $(if const { access::<F, C>($i).writes() } {
                        $s[b][i] = always.store(slots[$i]);
                    })*
                    add(lanes, i, &sums);
                }
            }
        }

        #[inline(always)]
        #[allow(clippy::too_many_arguments, reason = "as above")]
        fn $left<F: OnElement<C>, C: Real>(
            f: F,
            from: &[C],
            to: &mut [C],
            p: &[C],
            $($s: &mut [C],)*
            lanes: &mut Lanes,
        ) {
            let n = from.len();
            assert!(p.len() == n && (to.len() == n || !F::REWRITES));
            assert!(true $(&& ($s.len() == n || const { !access::<F, C>($i).reads() }))*);
            for i in 0..n {
                let i = hidden(i).min(n - 1);
                let mut slots = [$(if const { access::<F, C>($i).reads() } { $s[i] } else { C::zero() }),*];
                let (next, sums) = f.apply(F::Slots::of(&mut slots), from[i], p[i]);
                if F::REWRITES {
                    to[i] = next;
                }
                $(if const { access::<F, C>($i).writes() } {
                    $s[i] = slots[$i];
                })*
                add(lanes, i % LANES, &sums);
            }
        }
    )*};
}
loops! {
    all_0 blocks_0 left_0 0 ();
    all_1 blocks_1 left_1 1 (a 0);
    all_2 blocks_2 left_2 2 (a 0, b_ 1);
    all_3 blocks_3 left_3 3 (a 0, b_ 1, c 2);
    all_4 blocks_4 left_4 4 (a 0, b_ 1, c 2, d 3);
    all_5 blocks_5 left_5 5 (a 0, b_ 1, c 2, d 3, e 4);
    all_6 blocks_6 left_6 6 (a 0, b_ 1, c 2, d 3, e 4, f_ 5);
    all_7 blocks_7 left_7 7 (a 0, b_ 1, c 2, d 3, e 4, f_ 5, g 6);
    all_8 blocks_8 left_8 8 (a 0, b_ 1, c 2, d 3, e 4, f_ 5, g 6, h 7);
}

/// Those that are read, each at its number; the others are empty.
#[inline(always)]
fn by_number<'a, C>(accesses: &[Access], listed: Slots<'a, C>) -> Slots<'a, C> {
    let (mut all, mut next, mut listed) = (no_slots(), 0, listed);
    for (slot, array) in all.iter_mut().enumerate() {
        if Access::of(accesses, slot).reads() {
            core::mem::swap(array, &mut listed[next]);
            next += 1;
        }
    }
    all
}

/// The loop over one stretch.
pub(super) struct Each<'a, F, C> {
    pub(super) f: F,
    pub(super) from: &'a [C],
    /// Nothing, unless the updates are rewritten.
    pub(super) to: &'a mut [C],
    pub(super) p: &'a [C],
    /// The arrays that are read, one after another.
    pub(super) slots: Slots<'a, C>,
    pub(super) sums: &'a mut [f64],
}

impl<F: OnElement<C>, C: Real> Job for Each<'_, F, C> {
    type Output = ();
    const IS_RUN: bool = !C::RECORDS;
    #[inline(always)]
    fn run(self) {
        let Each { f, from, to, p, slots, sums } = self;
        let lanes = &mut [[0.0; LANES]; MOST_SUMS];
        Loops::<F, C>::RUN(f, from, to, p, by_number(F::ACCESS, slots), lanes);
        for (i, sum) in sums[..F::Sums::LEN].iter_mut().enumerate() {
            *sum += lanes[i].iter().sum::<f64>();
        }
    }
}

/// Does it to the elements of a tile, and adds to the sums that begin at `sum`. The updates are read where they are.
pub(super) fn each<F: OnElement<C>, C: Real>(f: F, arrays: &Arrays, sum: usize, tile: &mut Tile<'_, C>) {
    each_beside(f, arrays, sum, tile, tile.p);
}

/// The same with other elements in the place of the parameters.
pub(super) fn each_beside<F: OnElement<C>, C: Real>(
    f: F,
    arrays: &Arrays,
    sum: usize,
    tile: &mut Tile<'_, C>,
    p: &[C],
) {
    if arrays.has(tile.leaf) {
        Loops::<F, C>::TILE(f, arrays, sum, tile, p);
    }
}

/// As [`each_beside`].
type TileFn<F, C> = fn(F, &Arrays, usize, &mut Tile<'_, C>, &[C]);

impl<F: OnElement<C>, C: Real> Loops<F, C> {
    /// The one way of the two that a type of numbers has; see `ways`.
    const TILE: TileFn<F, C> = if C::RECORDS { Self::record } else { Self::through };

    fn record(f: F, arrays: &Arrays, sum: usize, tile: &mut Tile<'_, C>, p: &[C]) {
        let p = p[0];
        tile.record(&arrays.in_record(tile.leaf), sum..sum + F::Sums::LEN, &|slots, u, terms| {
            let (next, sums) = on_slots::<C, F::Slots, _>(F::ACCESS, slots, |slots| f.apply(slots, u, p));
            add_sums(terms, &sums);
            if F::REWRITES { next } else { u }
        });
    }

    fn through(f: F, arrays: &Arrays, sum: usize, tile: &mut Tile<'_, C>, p: &[C]) {
        let isa = tile.isa;
        let accesses = if const { <F::Slots as SlotArray<C>>::LEN > 0 } { F::ACCESS } else { &[] };
        with_parts(accesses, F::REWRITES, arrays, tile, &mut |from, to, slots, sums| {
            dispatch_chain(isa, Each { f, from, to, p, slots, sums: &mut sums[sum..] });
        });
    }
}

/// A loop on a tile: where it reads updates and where it writes them, the arrays that it reads, and all sums.
type OnParts<'r, C> = dyn FnMut(&[C], &mut [C], Slots<'_, C>, &mut [f64]) + 'r;

/// Calls a loop with what it goes through. Not part of every loop that there is.
fn with_parts<C: Real>(
    accesses: &[Access],
    rewrites: bool,
    arrays: &Arrays,
    tile: &mut Tile<'_, C>,
    run: &mut OnParts<'_, C>,
) {
    let (leaf, start, n, isa) = (tile.leaf, tile.start, tile.u.len(), tile.isa);
    let (spare, sums) = (core::mem::take(&mut tile.spare), core::mem::take(&mut tile.sums));
    let mut list = SlotList::new();
    if reads_any(accesses) {
        arrays.list_read(accesses, leaf, &mut list);
        tile.reads(&list);
    }
    tile.prefetch_share();
    let (from, to) = tile.input_output(rewrites);
    if reads_any(accesses) {
        with_list(&list, start, n, (isa, spare), &mut |slots| run(from, to, slots, sums));
    } else {
        run(from, to, no_slots(), sums);
    }
    (tile.spare, tile.sums) = (spare, sums);
}
