//! The loops of a chain's passes, selected by constants of function type: rustc instantiates both sides of an `if
//! const`.

use core::marker::PhantomData;

use super::kernel::{ADD, Body, DROP, STORE, run, run_mixed};
use super::limits::{MAX_BARRIERS, MAX_SLOTS};
use super::simd::SimdLevel;
use super::slot_access::any;
use super::stored::Arrays;
use super::sums::{Added, MAX_SUMS};
use super::{PassRange, Stage};
use crate::element::{Contribution, DType, Real};

pub(super) type PassFn<S, C> = fn(SimdLevel, &<S as Stage>::Kernel<C>, &Arrays<'_>) -> Added;

struct Fused<S, const FROM: usize, const TO: usize>(PhantomData<S>);

impl<S: Stage, C: Real, const FROM: usize, const TO: usize> Body<C> for Fused<S, FROM, TO> {
    type Kernel = S::Kernel<C>;
    const ARRAYS: usize = arrays::<S>();
    const READS: [bool; MAX_SLOTS] = slots_in::<S>(PassRange::of(FROM, TO), false);
    const WRITES: [bool; MAX_SLOTS] = slots_in::<S>(PassRange::of(FROM, TO), true);
    const READS_PARAMS: bool = PassRange::of(FROM, TO).intersects(S::SHAPE.reads_params);
    const SUMS: usize = if S::SHAPE.reduces_in(TO) { S::SHAPE.sums } else { 0 };
    const COUNTS: u32 = S::SHAPE.counts;
    const DEFERRABLE: bool = S::SHAPE.deferrable_in(TO);
    const TYPED: bool = S::SHAPE.typed;

    #[inline(always)]
    fn apply(
        kernel: &S::Kernel<C>,
        (dtype, deferred): (Option<DType>, bool),
        slots: &mut [C],
        u: C,
        p: C,
        terms: &mut [Contribution<C>; MAX_SUMS],
    ) -> C {
        S::apply::<C>(kernel, 0, PassRange { dtype, deferred, ..PassRange::of(FROM, TO) }, slots, u, p, terms)
    }
}

/// The loops of a stage: of whole passes if `MIXED`, whose arrays may have 16 bits; else of tiles, which have the
/// compute type.
pub(super) struct Passes<S, C, const MIXED: bool>(PhantomData<(S, C)>);

/// A table by first and last interval.
type ByRange<F> = [[Option<F>; MAX_BARRIERS + 1]; MAX_BARRIERS + 1];

/// A constant, so that rustc instantiates one of the two.
struct Selected<B, C, const OUT: u8, const MIXED: bool>(PhantomData<(B, C)>);

impl<B: Body<C>, C: Real, const OUT: u8, const MIXED: bool> Selected<B, C, OUT, MIXED> {
    const LOOP: fn(SimdLevel, &B::Kernel, &Arrays<'_>) -> Added =
        if MIXED { run_mixed::<B, C, OUT> } else { run::<B, C, OUT> };
}

macro_rules! passes {
    ($($from:literal $to:literal),*) => {
        impl<S: Stage, C: Real, const MIXED: bool> Passes<S, C, MIXED> {
            /// The passes of chains with this member.
            const RANGES: ByRange<PassFn<S, C>> = {
                let mut spans: ByRange<PassFn<S, C>> = [[None; _]; _];
                $(if S::SHAPE.can_range($from, $to) {
                    spans[$from][$to] = Some(run::<Fused<S, $from, $to>, C, STORE>);
                })*
                spans
            };

            /// The chain's own passes, by last interval. The shape determines which exist, their first intervals, and
            /// which drop updates.
            const OWN: [Option<PassFn<S, C>>; MAX_BARRIERS + 1] = {
                let mut own: [Option<PassFn<S, C>>; _] = [None; _];
                $(if S::SHAPE.barriers + 1 > $to && S::SHAPE.range($to).from == $from && !S::SHAPE.is_idle($to) {
                    own[$to] = Some(if S::SHAPE.drops($to) {
                        Selected::<Fused<S, $from, $to>, C, DROP, MIXED>::LOOP
                    } else {
                        run::<Fused<S, $from, $to>, C, STORE>
                    });
                })*
                own
            };

            /// True for passes in `OWN` with state arrays.
            pub(super) const GIVEN: [bool; MAX_BARRIERS + 1] = {
                let mut given = [true; _];
                $(if S::SHAPE.barriers + 1 > $to && S::SHAPE.range($to).from == $from {
                    given[$to] = is_given::<S>(S::SHAPE.drops($to), $from, $to);
                })*
                given
            };

            /// The last pass: from gradients or stored updates to parameters.
            pub(super) const LAST: PassFn<S, C> = match (S::SHAPE.range(barriers::<S>()).from, barriers::<S>()) {
                $(($from, $to) => Selected::<Fused<S, $from, $to>, C, ADD, MIXED>::LOOP,)*
                _ => unreachable!(),
            };
        }
    };
}
passes!(0 0, 0 1, 1 1, 0 2, 1 2, 2 2, 0 3, 1 3, 2 3, 3 3);

/// Returns the number of barriers that a loop handles; stages with more do not fuse.
const fn barriers<S: Stage>() -> usize {
    if S::SHAPE.barriers < MAX_BARRIERS { S::SHAPE.barriers } else { MAX_BARRIERS }
}

/// Returns the loop of a pass from one buffer of a tile to another. The first loop of a pass reads gradients in place.
pub(super) fn map<S: Stage, C: Real>(range: PassRange) -> PassFn<S, C> {
    let Some(pass) = Passes::<S, C, false>::RANGES[range.from][range.to] else {
        unreachable!("the pass structure allows this range")
    };
    pass
}

/// Returns the loop of a whole chain's pass `number`.
pub(super) fn own<S: Stage, C: Real, const MIXED: bool>(number: usize) -> PassFn<S, C> {
    let Some(pass) = Passes::<S, C, MIXED>::OWN[number] else { unreachable!("the pass structure has this pass") };
    pass
}

/// Returns the loop that drops updates, if the pass ends at the stage's own barrier.
pub(super) fn dropping<S: Stage, C: Real>(range: PassRange) -> Option<PassFn<S, C>> {
    let is_own =
        range.to < S::SHAPE.barriers && S::SHAPE.drops(range.to) && S::SHAPE.range(range.to).from == range.from;
    if is_own { Passes::<S, C, false>::OWN[range.to] } else { None }
}

/// Returns the loop from updates to parameters for the last pass of a stage with state. Stateless stages do too little
/// arithmetic to gain from it.
pub(super) fn last<S: Stage, C: Real, const ADDS: bool>(range: PassRange) -> Option<PassFn<S, C>> {
    let is_last = range.to == S::SHAPE.barriers && S::SHAPE.range(range.to).from == range.from;
    if is_last { const { if ADDS && S::SLOTS > 0 { Some(Passes::<S, C, false>::LAST) } else { None } } } else { None }
}

/// Returns the number of state arrays that a loop handles; stages with more do not fuse.
const fn arrays<S: Stage>() -> usize {
    if S::SLOTS < MAX_SLOTS { S::SLOTS } else { MAX_SLOTS }
}

const fn slots_in<S: Stage>(range: PassRange, written: bool) -> [bool; MAX_SLOTS] {
    let (mut slots, mut slot) = ([false; MAX_SLOTS], 0);
    while slot < arrays::<S>() {
        slots[slot] = if written {
            S::SLOT_ACCESSES[slot].is_written_in(range)
        } else {
            S::SLOT_ACCESSES[slot].is_read_in(range)
        };
        slot += 1;
    }
    slots
}

/// Returns true if the loop gets the arrays: unless it drops updates and reads none.
const fn is_given<S: Stage>(drops: bool, from: usize, to: usize) -> bool {
    !drops || any(slots_in::<S>(PassRange::of(from, to), false))
}
