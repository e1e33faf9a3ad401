//! The loops of the passes of a chain, chosen by constants, so that the others are not compiled: of what a condition
//! rules out the compiler still goes through all that is called in it.

use core::marker::PhantomData;

use super::isa::Isa;
use super::kernel::{ADD, Body, DROP, GIVE, run, run_mixed};
use super::limits::{MOST_BARRIERS, MOST_SLOTS};
use super::stored::Arrays;
use super::sums::{Added, MOST_SUMS};
use super::uses::any;
use super::{Span, Stage};
use crate::element::{DType, Real, Term};

/// A loop of a chain.
pub(super) type PassFn<S, C> = fn(Isa, &<S as Stage>::Kernel<C>, &Arrays<'_>) -> Added;

/// What a chain does to one element in the pass from one barrier to another.
struct Fused<S, const FROM: usize, const TO: usize>(PhantomData<S>);

impl<S: Stage, C: Real, const FROM: usize, const TO: usize> Body<C> for Fused<S, FROM, TO> {
    type Kernel = S::Kernel<C>;
    const ARRAYS: usize = arrays::<S>();
    const READS: [bool; MOST_SLOTS] = slots_in::<S>(Span::of(FROM, TO), false);
    const WRITES: [bool; MOST_SLOTS] = slots_in::<S>(Span::of(FROM, TO), true);
    const READS_PARAMS: bool = Span::of(FROM, TO).meets(S::SHAPE.reads_params);
    const SUMS: usize = if S::SHAPE.adds_in(TO) { S::SHAPE.sums } else { 0 };
    const COUNTS: u32 = S::SHAPE.counts;
    const ADDS_LATER: bool = S::SHAPE.adds_later_in(TO);
    const TYPED: bool = S::SHAPE.typed;

    #[inline(always)]
    fn apply(
        kernel: &S::Kernel<C>,
        (dtype, later): (Option<DType>, bool),
        slots: &mut [C],
        u: C,
        p: C,
        terms: &mut [Term<C>; MOST_SUMS],
    ) -> C {
        S::apply::<C>(kernel, 0, Span { dtype, later, ..Span::of(FROM, TO) }, slots, u, p, terms)
    }
}

/// The passes of a chain, and the last one.
pub(super) struct Passes<S, C>(PhantomData<(S, C)>);

/// One for each barrier interval, by where they begin and end.
type BySpan<F> = [[Option<F>; MOST_BARRIERS + 1]; MOST_BARRIERS + 1];

macro_rules! passes {
    ($($from:literal $to:literal),*) => {
        impl<S: Stage, C: Real> Passes<S, C> {
            /// Those that a chain can have that this is part of.
            const SPANS: BySpan<PassFn<S, C>> = {
                let mut spans: BySpan<PassFn<S, C>> = [[None; _]; _];
                $(if S::SHAPE.can_span($from, $to) {
                    spans[$from][$to] = Some(run::<Fused<S, $from, $to>, C, GIVE>);
                })*
                spans
            };

            /// Those of the chain itself, by where they end. Which it has, where they begin and which of them drop the
            /// updates is known.
            const OWN: [Option<PassFn<S, C>>; MOST_BARRIERS + 1] = {
                let mut own: [Option<PassFn<S, C>>; _] = [None; _];
                $(if S::SHAPE.barriers + 1 > $to && S::SHAPE.span($to).from == $from && !S::SHAPE.is_idle($to) {
                    own[$to] = Some(if S::SHAPE.drops($to) {
                        run_mixed::<Fused<S, $from, $to>, C, DROP>
                    } else {
                        run::<Fused<S, $from, $to>, C, GIVE>
                    });
                })*
                own
            };

            /// Whether the loop of each of these is given the state arrays.
            pub(super) const GIVEN: [bool; MOST_BARRIERS + 1] = {
                let mut given = [true; _];
                $(if S::SHAPE.barriers + 1 > $to && S::SHAPE.span($to).from == $from {
                    given[$to] = is_given::<S>(S::SHAPE.drops($to), $from, $to);
                })*
                given
            };

            /// The last one: from gradients (or stored updates) to parameters.
            pub(super) const LAST: PassFn<S, C> = match (S::SHAPE.span(barriers::<S>()).from, barriers::<S>()) {
                $(($from, $to) => run_mixed::<Fused<S, $from, $to>, C, ADD>,)*
                _ => unreachable!(),
            };
        }
    };
}
passes!(0 0, 0 1, 1 1, 0 2, 1 2, 2 2, 0 3, 1 3, 2 3, 3 3);

/// How many barriers a loop goes over; what has more does not fuse.
const fn barriers<S: Stage>() -> usize {
    if S::SHAPE.barriers < MOST_BARRIERS { S::SHAPE.barriers } else { MOST_BARRIERS }
}

/// What transforms a tile of updates as the chain does in a pass, from one place to another: the first loop of a pass
/// reads the gradients where they are.
pub(super) fn map<S: Stage, C: Real>(span: Span) -> PassFn<S, C> {
    let Some(pass) = Passes::<S, C>::SPANS[span.from][span.to] else { unreachable!("a pass spans what its shape can") };
    pass
}

/// A pass of a whole chain, after so many barriers.
pub(super) fn own<S: Stage, C: Real>(number: usize) -> PassFn<S, C> {
    let Some(pass) = Passes::<S, C>::OWN[number] else { unreachable!("a chain has the passes of its shape") };
    pass
}

/// The same for a pass that ends at a barrier of the stage's own and drops the updates, if it has one.
pub(super) fn dropping<S: Stage, C: Real>(span: Span) -> Option<PassFn<S, C>> {
    let is_own = span.to < S::SHAPE.barriers && S::SHAPE.drops(span.to) && S::SHAPE.span(span.to).from == span.from;
    if is_own { Passes::<S, C>::OWN[span.to] } else { None }
}

/// The last pass of a stage with state, from updates to parameters, if this is it. What has no state calculates too
/// little for it to save anything.
pub(super) fn last<S: Stage, C: Real>(span: Span) -> Option<PassFn<S, C>> {
    let is_last = span.to == S::SHAPE.barriers && S::SHAPE.span(span.to).from == span.from;
    if is_last { const { if S::SLOTS > 0 { Some(Passes::<S, C>::LAST) } else { None } } } else { None }
}

/// How many arrays a loop has; of what does not fuse there are none to run.
const fn arrays<S: Stage>() -> usize {
    if S::SLOTS < MOST_SLOTS { S::SLOTS } else { MOST_SLOTS }
}

/// The arrays that a pass reads, or those that it writes.
const fn slots_in<S: Stage>(span: Span, written: bool) -> [bool; MOST_SLOTS] {
    let (mut slots, mut slot) = ([false; MOST_SLOTS], 0);
    while slot < arrays::<S>() {
        slots[slot] = if written { S::USES[slot].is_written_in(span) } else { S::USES[slot].is_read_in(span) };
        slot += 1;
    }
    slots
}

/// Whether the loop of a pass is given the arrays. One that drops updates, and reads none of them, is not.
const fn is_given<S: Stage>(drops: bool, from: usize, to: usize) -> bool {
    !drops || any(slots_in::<S>(Span::of(from, to), false))
}
