//! Which ways a stage has through tiles and pieces: as one loop, apart, or both.
//!
//! Constants of function type choose them. A condition would not do: of what it rules out the compiler still goes
//! through all that is called in it, loops and all, for each chain and type of numbers.

use core::marker::PhantomData;

use super::fused::{Fused, TileFn};
use super::in_piece::{PieceAt, Then, by_one_loop, one_loop};
use super::{Place, Span, Stage, Tile};
use crate::element::Real;

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
    Ways::<S, C>::TILE.filter(|_| is_one_loop(stage, held, leaf))
}

/// The same through a piece.
pub(super) fn whole_piece<S: Stage, C: Real>(
    stage: &S,
    held: (&S::State, &S::Run),
    leaf: usize,
) -> Option<InPieceFn<S, C>> {
    Ways::<S, C>::PIECE.filter(|_| is_one_loop(stage, held, leaf))
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
