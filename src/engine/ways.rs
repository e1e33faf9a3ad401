//! Which ways a stage has through tiles and pieces: as one loop, apart, or both.
//!
//! Constants of function type choose them. A condition would not do: of what it rules out the compiler still goes
//! through all that is called in it, loops and all, for each chain and type of numbers.

use core::marker::PhantomData;

use super::fused::{local_span, on_all_of};
use super::in_piece::{Then, by_one_loop, one_loop};
use super::piece_at::PieceAt;
use super::sums::MOST_SUMS;
use super::tile::DoesTo;
use super::{Place, Shape, SlotList, Span, Stage, Tile};
use crate::element::{Real, Term};

/// Those of a stage, for a type of numbers.
struct Ways<S, C>(PhantomData<(S, C)>);

pub(super) type InPieceFn<S, C> = fn(&S, (&<S as Stage>::State, &<S as Stage>::Run), PieceAt, &mut Then<'_, C>);

impl<S: Stage, C: Real> Ways<S, C> {
    /// Members are recorded one by one, so that the ways through them do not multiply.
    const MAY_BE_ONE: bool = by_one_loop::<S>() && !C::RECORDS;
    const IS_ONE: bool = S::FUSES_ALWAYS && Self::MAY_BE_ONE;

    const TILE: Option<TileFn<S, C>> = if Self::MAY_BE_ONE { Some(Fused::<S, C>::run) } else { None };
    const TILE_APART: Option<TileFn<S, C>> = if Self::IS_ONE { None } else { Some(Self::tile_apart) };
    const PIECE: Option<InPieceFn<S, C>> = if Self::MAY_BE_ONE { Some(one_loop::<S, C>) } else { None };
    const PIECE_APART: Option<InPieceFn<S, C>> = if Self::IS_ONE { None } else { Some(Self::piece_apart) };

    fn tile_apart(stage: &S, held: (&S::State, &S::Run), place: Place, span: Span, tile: &mut Tile<'_, C>) {
        stage.tile_apart(held.0, held.1, place, span, tile);
    }

    fn piece_apart(stage: &S, held: (&S::State, &S::Run), at: PieceAt, then: &mut Then<'_, C>) {
        stage.in_piece_apart(held.0, held.1, at, then);
    }
}

/// Whether the one loop is right for this leaf in this step.
fn is_one_loop<S: Stage>(stage: &S, (state, run): (&S::State, &S::Run), leaf: usize) -> bool {
    S::FUSES_ALWAYS || stage.fuses_now(state, run, leaf)
}

/// The one loop of a stage on a tile, if it is right for the leaf in this step.
pub(super) fn whole_tile<S: Stage, C: Real>(
    stage: &S,
    held: (&S::State, &S::Run),
    leaf: usize,
) -> Option<TileFn<S, C>> {
    if is_one_loop(stage, held, leaf) { Ways::<S, C>::TILE } else { None }
}

/// The same through a piece.
pub(super) fn whole_piece<S: Stage, C: Real>(
    stage: &S,
    held: (&S::State, &S::Run),
    leaf: usize,
) -> Option<InPieceFn<S, C>> {
    if is_one_loop(stage, held, leaf) { Ways::<S, C>::PIECE } else { None }
}

/// Transforms a tile by one loop where that is right, and else [apart](Stage::tile_apart).
pub(super) fn tile<S: Stage, C: Real>(
    stage: &S,
    held: (&S::State, &S::Run),
    place: Place,
    span: Span,
    tile: &mut Tile<'_, C>,
) {
    if let Some(way) = whole_tile(stage, held, tile.leaf).or(Ways::<S, C>::TILE_APART) {
        way(stage, held, place, span, tile);
    }
}

/// Goes through a piece by one loop where that is right, and else [apart](Stage::in_piece_apart).
pub(super) fn in_piece<S: Stage, C: Real>(stage: &S, held: (&S::State, &S::Run), at: PieceAt, then: &mut Then<'_, C>) {
    if let Some(way) = whole_piece(stage, held, at.leaf).or(Ways::<S, C>::PIECE_APART) {
        way(stage, held, at, then);
    }
}

/// The default way for a stage that fuses to transform a tile: one loop for all its members.
pub(crate) fn fused_tile<S: Stage, C: Real>(
    stage: &S,
    state: &S::State,
    run: &S::Run,
    place: Place,
    span: Span,
    tile: &mut Tile<'_, C>,
) {
    Fused::<S, C>::TILE(stage, (state, run), place, span, tile);
}

/// The two ways to do it, of which a type of numbers has one. A constant chooses it.
struct Fused<S, C>(PhantomData<(S, C)>);

/// What transforms a tile.
pub(super) type TileFn<S, C> = fn(&S, (&<S as Stage>::State, &<S as Stage>::Run), Place, Span, &mut Tile<'_, C>);

impl<S: Stage, C: Real> Fused<S, C> {
    const TILE: TileFn<S, C> = if C::RECORDS { Self::record } else { Self::run };

    #[inline(never)]
    fn run(stage: &S, held: (&S::State, &S::Run), place: Place, span: Span, tile: &mut Tile<'_, C>) {
        one_loop(stage, held, PieceAt::of_tile(place, span, tile), &mut on_all_of(tile));
    }

    #[inline(never)]
    fn record(stage: &S, (state, run): (&S::State, &S::Run), place: Place, span: Span, tile: &mut Tile<'_, C>) {
        let Some(local) = local_span(S::SHAPE.barriers, place.at, span) else { return };
        let (kernel, list) = (stage.kernel::<C>(state, run, tile.leaf), SlotList::of(stage, state, tile.leaf));
        let p = tile.p[0];
        record(S::SHAPE, &list, (place, span), tile, &|slots, u, terms| {
            S::apply::<C>(&kernel, 0, local, slots, u, p, terms)
        });
    }
}

/// Records what a loop does to an element. Not inlined: it is the same for all.
#[inline(never)]
fn record<C: Real>(
    shape: Shape,
    list: &SlotList<'_>,
    (place, span): (Place, Span),
    tile: &mut Tile<'_, C>,
    apply: DoesTo<'_, C>,
) {
    // A pass that only repeats what an earlier pass has done must not count it twice.
    let sums = if span.to <= place.at + shape.barriers { shape.sums } else { 0 };
    tile.record(&list.in_record()[..list.len()], place.sum..place.sum + sums, &|slots, u, terms| {
        let mut all = [Term::default(); MOST_SUMS];
        let u = apply(slots, u, &mut all);
        terms.copy_from_slice(&all[..terms.len()]);
        u
    });
}
