//! The tile driver: each stage finds its arrays and chooses its loop once per chunk, and then transforms tiles.
//!
//! Finding arrays takes as long as the loop over a tile.
#![allow(unsafe_code, reason = "state arrays are cut into the same pieces as the leaves they belong to; see `memory`")]

use core::marker::PhantomData;

use super::fused::{self, SlotList, local_span, with_list};
use super::kernel::{ReadAhead, Slots};
use super::passes::{self, Beside, FromTo};
use super::sums::{Added, MOST_SUMS, NOTHING};
use super::tile::DoesTo;
use super::{Place, Shape, Span, Stage, Tile};
use crate::element::{Real, Term};
use crate::memory::RawSlice;

/// Which piece of which leaf, on its way through which part of which pass.
#[derive(Clone, Copy, Debug)]
pub struct PieceAt {
    pub(crate) place: Place,
    pub(crate) span: Span,
    pub(crate) leaf: usize,
    pub(crate) start: usize,
    pub(crate) len: usize,
    pub(crate) next: Next,
}

/// The destination of the updates that a stage emits in a pass.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Next {
    /// Other stages or the driver read them.
    Read,
    /// Nobody reads them after this pass.
    Dropped,
    /// They are added to the parameters, which are these and of the type that is calculated with.
    Added(RawSlice),
}

impl PieceAt {
    /// A tile as a piece of its own.
    pub(crate) fn of_tile<C>(place: Place, span: Span, tile: &Tile<'_, C>) -> PieceAt {
        PieceAt { place, span, leaf: tile.leaf, start: tile.start, len: tile.u.len(), next: Next::Read }
    }

    /// The same piece, for what follows a stage of this shape.
    pub(crate) fn after(self, shape: Shape) -> PieceAt {
        PieceAt { place: self.place.after(shape), ..self }
    }

    /// The same piece, for a stage that others follow.
    pub(crate) fn followed(self) -> PieceAt {
        let next = if matches!(self.next, Next::Dropped) { Next::Dropped } else { Next::Read };
        PieceAt { next, ..self }
    }

    /// The same piece, for a stage whose updates are read whatever becomes of them in the pass.
    pub(crate) fn read(self) -> PieceAt {
        PieceAt { next: Next::Read, ..self }
    }
}

/// Transforms a tile of a piece: tiles come in order.
pub type OnTile<'t, C> = dyn FnMut(&mut Tile<'_, C>) + 't;

/// Who is given what transforms tiles. It comes as a reference, so that a piece needs no memory of its own.
pub type Then<'t, C> = dyn FnMut(&mut OnTile<'_, C>) + 't;

/// Transforms one tile as a stage does in a pass.
pub(crate) fn on_tile<S: Stage, C: Real>(
    stage: &S,
    (state, run): (&S::State, &S::Run),
    place: Place,
    span: Span,
    tile: &mut Tile<'_, C>,
) {
    stage.in_piece(state, run, PieceAt::of_tile(place, span, tile), &mut |part| part(tile));
}

/// The members of a chain, in a pass.
pub(crate) trait Members<C: Real> {
    /// The number of members that run on the leaf.
    fn len(&self) -> usize;
    /// Returns true if every member of the chain runs on the leaf.
    fn is_whole(&self) -> bool;
    fn shape(&self, member: usize) -> Shape;
    /// As [`Stage::in_piece`].
    fn in_piece(&self, member: usize, at: PieceAt, then: &mut Then<'_, C>);
}

/// The members of a chain, one after the other.
pub(crate) fn in_members<C: Real>(members: &dyn Members<C>, at: PieceAt, then: &mut Then<'_, C>) {
    let at = if members.is_whole() { at } else { at.followed() };
    match members.len() {
        0 => then(&mut |_| {}),
        many => {
            let here = if many > 1 { at.followed() } else { at };
            members.in_piece(0, here, &mut |first| from_member(members, 1, at.after(members.shape(0)), first, then));
        }
    }
}

/// The members from `next` on, after what those before do.
fn from_member<C: Real>(
    members: &dyn Members<C>,
    next: usize,
    at: PieceAt,
    before: &mut OnTile<'_, C>,
    then: &mut Then<'_, C>,
) {
    if next == members.len() {
        return then(before);
    }
    let here = if next + 1 < members.len() { at.followed() } else { at };
    members.in_piece(next, here, &mut |own| {
        let mut both = |tile: &mut Tile<'_, C>| {
            before(tile);
            own(tile);
        };
        from_member(members, next + 1, at.after(members.shape(next)), &mut both, then);
    });
}

/// A stage in a step.
type Held<'a, S> = (&'a <S as Stage>::State, &'a <S as Stage>::Run);

/// The one loop of a stage that fuses.
type LoopFn<S, C> = fn(&S, Held<'_, S>, PieceAt, &mut Then<'_, C>);

/// The ways of a stage through a piece, for a type of numbers. Constants of function type choose them. A condition
/// would not do: of what it rules out the compiler still goes through all that is called in it.
struct Ways<S, C>(PhantomData<(S, C)>);

impl<S: Stage, C: Real> Ways<S, C> {
    const LOOP: LoopFn<S, C> = if C::RECORDS { record::<S, C> } else { one_loop::<S, C> };
    /// Members are recorded one by one, so that the ways through them do not multiply.
    const CHAIN: Option<LoopFn<S, C>> = if by_one_loop::<S>() && !C::RECORDS { Some(one_loop::<S, C>) } else { None };
}

/// Returns true if a fusing stage transforms tiles by one loop. Stages with both leaf statistics and reductions do so
/// in whole passes only: a boxed one would need a loop for each pass range, of which `adafactor` has ten.
pub(super) const fn by_one_loop<S: Stage>() -> bool {
    S::FUSES && (S::SHAPE.looks == 0 || S::SHAPE.sums == 0)
}

/// The loop of a stage that is one for this leaf in this step.
pub(crate) fn fused<S: Stage, C: Real>(stage: &S, held: Held<'_, S>, at: PieceAt, then: &mut Then<'_, C>) {
    Ways::<S, C>::LOOP(stage, held, at, then);
}

/// The loop of what joins stages, if it is one for this leaf in this step.
pub(super) fn as_one_loop<S: Stage, C: Real>(
    stage: &S,
    (state, run): Held<'_, S>,
    leaf: usize,
) -> Option<LoopFn<S, C>> {
    if S::FUSES_ALWAYS || stage.fuses_now(state, run, leaf) { Ways::<S, C>::CHAIN } else { None }
}

/// One loop over tiles, with what it needs in this pass.
#[inline(never)]
fn one_loop<S: Stage, C: Real>(stage: &S, (state, run): Held<'_, S>, at: PieceAt, then: &mut Then<'_, C>) {
    let Some(local) = local_span(S::SHAPE.barriers, at.place.at, at.span) else { return then(&mut |_| {}) };
    // The last loop of a pass whose updates nobody reads writes none.
    let dropping = if matches!(at.next, Next::Dropped) { passes::dropping::<S, C>(local) } else { None };
    let last = passes::last::<S, C>(local);
    let (pass, kernel) = (dropping.unwrap_or(passes::map::<S, C>(local)), stage.kernel(state, run, at.leaf));
    let drops = dropping.is_some();
    let mut around = AroundLoop { list: SlotList::new(), direct: None, at, adds: false, drops };
    around.list.fill(stage, state, at.leaf);
    around.find(&S::SHAPE, local);
    then(&mut |tile| {
        let isa = tile.isa;
        let added = match (last, around.at.next) {
            (Some(last), Next::Added(params)) => {
                let run = &mut |from: ReadAhead<'_, C>, p: &mut [C], slots: &mut Slots<'_, C>| {
                    last(isa, &kernel, from, p, slots)
                };
                around.add_to_params(tile, params, run)
            }
            _ => match around.before(tile) {
                Some((from_to, beside)) => pass(isa, &kernel, from_to, beside),
                None => around.converted(tile, &mut |from_to, beside| pass(isa, &kernel, from_to, beside)),
            },
        };
        if const { S::SHAPE.sums > 0 } && around.adds {
            fused::add(&S::SHAPE, &added, at.place, tile.sums);
        }
    });
}

/// The arrays and flags of a loop.
struct AroundLoop<'a, C: Real> {
    list: SlotList<'a>,
    /// The state arrays of the piece, where they lie as they are calculated with; else they are converted tile by tile.
    direct: Option<Slots<'a, C>>,
    at: PieceAt,
    /// Whether it adds up in this pass.
    adds: bool,
    /// True if the loop writes no updates.
    drops: bool,
}

/// Runs a loop from updates to parameters.
type AddToParams<'r, C> = dyn FnMut(ReadAhead<'_, C>, &mut [C], &mut Slots<'_, C>) -> Added + 'r;

/// Runs a loop on what it goes through.
type Run<'r, C> = dyn FnMut(FromTo<'_, C>, Beside<'_, '_, C>) -> Added + 'r;

impl<'a, C: Real> AroundLoop<'a, C> {
    #[inline(never)]
    fn find(&mut self, shape: &Shape, local: Span) {
        let at = self.at;
        // A pass that only repeats what an earlier pass has done must not count it twice.
        self.adds = shape.adds_in(local.to) && at.span.to <= at.place.at + shape.barriers;
        if self.list.is_native::<C>() {
            // SAFETY: the engine holds the state exclusively for the step and gives each piece to one task; while this
            // part is there, nothing else of the stage is run on the piece.
            self.direct = Some(unsafe { self.list.slices(at.start, at.len) });
        }
    }

    /// What the loop is given for a tile, if state arrays need not be converted.
    fn before<'s>(&'s mut self, tile: &'s mut Tile<'_, C>) -> Option<(FromTo<'s, C>, Beside<'s, 'a, C>)> {
        tile.reads(&self.list);
        tile.prefetch_share();
        let (first, slots, p) = (tile.start - self.at.start, self.direct.as_mut()?, tile.p);
        let (from, to) = tile.input_output(!self.drops);
        Some(((from, to, p), (slots, first, self.adds)))
    }

    /// Runs the loop that adds the updates to the parameters.
    #[inline(never)]
    fn add_to_params(&mut self, tile: &mut Tile<'_, C>, params: RawSlice, run: &mut AddToParams<'_, C>) -> Added {
        let (start, n, isa) = (tile.start, tile.u.len(), tile.isa);
        let spare = core::mem::take(&mut tile.spare);
        tile.p = &[];
        tile.added = true;
        // SAFETY: parameters are lent for the step to be written, and each piece is run once in a pass; what `p`
        // borrowed is not used any more.
        let p = unsafe { params.slice_mut(start, n) };
        let ahead = tile.coming;
        let from = (tile.input(), ahead);
        let mut added = NOTHING;
        with_list(&self.list, start, n, (isa, spare), &mut |mut slots| added = run(from, p, &mut slots));
        tile.spare = spare;
        added
    }

    /// Runs the loop with state arrays that are converted.
    #[inline(never)]
    fn converted(&mut self, tile: &mut Tile<'_, C>, run: &mut Run<'_, C>) -> Added {
        let (start, n, isa, p) = (tile.start, tile.u.len(), tile.isa, tile.p);
        let spare = core::mem::take(&mut tile.spare);
        let (from, to) = tile.input_output(!self.drops);
        let mut added = NOTHING;
        let list = &self.list;
        with_list(list, start, n, (isa, spare), &mut |mut slots| {
            added = run((from, to, p), (&mut slots, 0, self.adds))
        });
        tile.spare = spare;
        added
    }
}

/// The same for an element that is recorded.
#[inline(never)]
fn record<S: Stage, C: Real>(stage: &S, (state, run): Held<'_, S>, at: PieceAt, then: &mut Then<'_, C>) {
    let Some(local) = local_span(S::SHAPE.barriers, at.place.at, at.span) else { return then(&mut |_| {}) };
    let (kernel, list) = (stage.kernel::<C>(state, run, at.leaf), SlotList::of(stage, state, at.leaf));
    then(&mut |tile| {
        let p = tile.p[0];
        record_element(S::SHAPE, &list, at, tile, &|slots, u, terms| {
            S::apply::<C>(&kernel, 0, local, slots, u, p, terms)
        });
    });
}

/// Not inlined: it is the same for all.
#[inline(never)]
fn record_element<C: Real>(
    shape: Shape,
    list: &SlotList<'_>,
    PieceAt { place, span, .. }: PieceAt,
    tile: &mut Tile<'_, C>,
    apply: DoesTo<'_, C>,
) {
    // As in `find`.
    let sums = if span.to <= place.at + shape.barriers { shape.sums } else { 0 };
    tile.record(&list.in_record()[..list.len()], place.sum..place.sum + sums, &|slots, u, terms| {
        let mut all = [Term::default(); MOST_SUMS];
        let u = apply(slots, u, &mut all);
        terms.copy_from_slice(&all[..terms.len()]);
        u
    });
}
