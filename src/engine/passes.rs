//! Which loop a pass of a chain is: chosen by constants, so that the others are not compiled; see "One of many" in
//! [`kernel`](super::kernel).

use core::marker::PhantomData;

#[cfg(feature = "half")]
use super::blocks::{ReadBlocks, SlotBlocks, WriteBlocks};
#[cfg(feature = "half")]
use super::halves::{Format, Source};
use super::isa::{Isa, dispatch_chain};
use super::jobs::{Apply, Map};
#[cfg(feature = "half")]
use super::jobs::{ApplyHalves, ApplyMixed, DropHalves};
use super::kernel::{MOST_BARRIERS, ReadAhead, Slots};
use super::sums::Added;
use super::uses::is_given;
use super::{Span, Stage};
use crate::element::Real;

/// Where the updates are and where they go, and the parameters.
pub(super) type FromTo<'a, C> = (&'a [C], &'a mut [C], &'a [C]);
/// State arrays, the number of the first element in them, and whether something is added up.
pub(super) type Beside<'a, 's, C> = (&'a mut Slots<'s, C>, usize, bool);
pub(super) type PassFn<S, C> = fn(Isa, &<S as Stage>::Kernel<C>, FromTo<'_, C>, Beside<'_, '_, C>) -> Added;

#[inline]
fn map_in<S: Stage, C: Real, const DROPS: bool, const FROM: usize, const TO: usize>(
    isa: Isa,
    kernel: &S::Kernel<C>,
    (from, u, p): FromTo<'_, C>,
    (slots, first, adds): Beside<'_, '_, C>,
) -> Added {
    dispatch_chain(isa, Map::<S, C, DROPS, FROM, TO> { kernel, from, u, p, slots, first, adds })
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
                    spans[$from][$to] = Some(map_in::<S, C, false, $from, $to>);
                })*
                spans
            };

            /// Those of the chain itself, by where they end. Which it has, where they begin and which of them drop the
            /// updates is known.
            const OWN: [Option<PassFn<S, C>>; MOST_BARRIERS + 1] = {
                let mut own: [Option<PassFn<S, C>>; _] = [None; _];
                $(if S::SHAPE.barriers + 1 > $to && S::SHAPE.span($to).from == $from && !S::SHAPE.is_idle($to) {
                    own[$to] = Some(if S::SHAPE.drops($to) {
                        map_in::<S, C, true, $from, $to>
                    } else {
                        map_in::<S, C, false, $from, $to>
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

            /// The last one, on a piece: from gradients (or stored updates) to parameters.
            pub(super) const LAST: LastFn<S, C> = match (S::SHAPE.span(barriers::<S>()).from, barriers::<S>()) {
                $(($from, $to) => apply_in::<S, C, $from, $to>,)*
                _ => unreachable!(),
            };
        }

        #[cfg(feature = "half")]
        impl<S: Stage> Passes<S, Format> {
            /// The last one, on a leaf of 16 bits: on whole [blocks](crate::engine::kernel::BLOCK).
            pub(super) const LAST_HALVES: Option<LastOfHalvesFn<S>> = match (S::SHAPE.span(barriers::<S>()).from, barriers::<S>()) {
                $(($from, $to) => Some(apply_halves_in::<S, $from, $to>),)*
                _ => None,
            };

            /// The last one, where state has 16 bits: on whole blocks. There is none where it adds up, or is given what
            /// was found, which lies nowhere.
            pub(super) const LAST_MIXED: Option<MixedFn<S>> = match (S::SHAPE.span(barriers::<S>()).from, barriers::<S>()) {
                $(($from, $to) if !S::SHAPE.adds_in($to) && S::SLOTS > 0 && S::SHAPE.looks == 0 => Some(apply_mixed_in::<S, $from, $to>),)*
                _ => None,
            };

            /// Those that go from gradients and drop the updates, by where they end, on a leaf of 16 bits as above.
            pub(super) const DROP_HALVES: [Option<DropHalvesFn<S>>; MOST_BARRIERS + 1] = {
                let mut own: [Option<DropHalvesFn<S>>; _] = [None; _];
                $(if $from == 0 && S::SHAPE.drops($to) && S::SHAPE.span($to).from == $from && !S::SHAPE.is_idle($to) {
                    own[$to] = Some(drop_halves_in::<S, $from, $to>);
                })*
                own
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

/// The same for a pass that ends at a barrier of the stage's own and drops the updates, if it has one.
pub(super) fn dropping<S: Stage, C: Real>(span: Span) -> Option<PassFn<S, C>> {
    let is_own = span.to < S::SHAPE.barriers && S::SHAPE.drops(span.to) && S::SHAPE.span(span.to).from == span.from;
    if is_own { Passes::<S, C>::OWN[span.to] } else { None }
}

/// The last pass of a stage with state, from updates to parameters, if this is it. What has no state calculates too
/// little for it to save anything.
pub(super) fn last<S: Stage, C: Real>(span: Span) -> Option<LastFn<S, C>> {
    let is_last = span.to == S::SHAPE.barriers && S::SHAPE.span(span.to).from == span.from;
    if is_last { const { if S::SLOTS > 0 { Some(Passes::<S, C>::LAST) } else { None } } } else { None }
}

/// The type of [`pass`].
pub(super) type OwnFn<S, C> = fn(Isa, usize, &<S as Stage>::Kernel<C>, FromTo<'_, C>, &mut Slots<'_, C>) -> Added;

/// Does a pass of a whole chain on a tile, after so many barriers.
pub(crate) fn pass<S: Stage, C: Real>(
    isa: Isa,
    number: usize,
    kernel: &S::Kernel<C>,
    from_to: FromTo<'_, C>,
    slots: &mut Slots<'_, C>,
) -> Added {
    let Some(pass) = Passes::<S, C>::OWN[number] else { unreachable!("a chain has the passes of its shape") };
    pass(isa, kernel, from_to, (slots, 0, true))
}

pub(super) type LastFn<S, C> =
    fn(Isa, &<S as Stage>::Kernel<C>, ReadAhead<'_, C>, &mut [C], &mut Slots<'_, C>) -> Added;
#[cfg(feature = "half")]
type LastOfHalvesFn<S> =
    fn(Isa, &<S as Stage>::Kernel<f32>, Format, Source<'_>, &mut [u16], &mut Slots<'_, f32>) -> Added;

#[cfg(feature = "half")]
type DropHalvesFn<S> = fn(Isa, &<S as Stage>::Kernel<f32>, Format, &[u16], &[u16], &mut Slots<'_, f32>) -> Added;

fn apply_in<S: Stage, C: Real, const FROM: usize, const TO: usize>(
    isa: Isa,
    kernel: &S::Kernel<C>,
    g: ReadAhead<'_, C>,
    p: &mut [C],
    slots: &mut Slots<'_, C>,
) -> Added {
    dispatch_chain(isa, Apply::<S, C, FROM, TO> { kernel, g, p, slots })
}

#[cfg(feature = "half")]
fn apply_halves_in<S: Stage, const FROM: usize, const TO: usize>(
    isa: Isa,
    kernel: &S::Kernel<f32>,
    format: Format,
    g: Source<'_>,
    p: &mut [u16],
    slots: &mut Slots<'_, f32>,
) -> Added {
    dispatch_chain(isa, ApplyHalves::<S, FROM, TO> { kernel, format, g, p, slots })
}

#[cfg(feature = "half")]
fn drop_halves_in<S: Stage, const FROM: usize, const TO: usize>(
    isa: Isa,
    kernel: &S::Kernel<f32>,
    format: Format,
    g: &[u16],
    p: &[u16],
    slots: &mut Slots<'_, f32>,
) -> Added {
    dispatch_chain(isa, DropHalves::<S, FROM, TO> { kernel, format, g, p, slots })
}

#[cfg(feature = "half")]
pub(super) type MixedFn<S> = fn(Isa, <S as Stage>::Kernel<f32>, ReadBlocks<'_>, WriteBlocks<'_>, SlotBlocks<'_>);

#[cfg(feature = "half")]
fn apply_mixed_in<S: Stage, const FROM: usize, const TO: usize>(
    isa: Isa,
    kernel: S::Kernel<f32>,
    g: ReadBlocks<'_>,
    p: WriteBlocks<'_>,
    slots: SlotBlocks<'_>,
) {
    dispatch_chain(isa, ApplyMixed::<S, FROM, TO> { kernel, g, p, slots });
}
