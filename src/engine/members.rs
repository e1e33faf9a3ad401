//! The members of a chain that is not one loop, one after the other.
#![allow(unsafe_code, reason = "parameters that are lent to be written; see `memory`")]

use super::factors::{Factors, Scale, Times};
use super::in_piece::{InPiece, Params, Takes, Then, add_apart, between};
use super::piece_at::PieceAt;
use super::{Shape, Tile};
use crate::element::Real;

/// The members of a chain, in a pass.
pub(crate) trait Members<C: Real> {
    fn len(&self) -> usize;
    fn shape(&self, member: usize) -> Shape;
    /// As [`Stage::in_piece`](super::Stage::in_piece).
    fn in_piece(&self, member: usize, at: PieceAt, then: &mut Then<'_, C>);
}

/// What members do in a piece, one after the other.
pub(crate) fn in_members<C: Real>(members: &dyn Members<C>, at: PieceAt, then: &mut Then<'_, C>) {
    from_member(members, 0, at, Factors::default(), then);
}

/// The same from the member `first` on, after factors that those before it have left to be multiplied by.
fn from_member<C: Real>(
    members: &dyn Members<C>,
    first: usize,
    at: PieceAt,
    before: Factors<C>,
    then: &mut Then<'_, C>,
) {
    if first == members.len() {
        return then(&mut Times(before));
    }
    members.in_piece(first, at, &mut |part| {
        let at = at.after(members.shape(first));
        if before.is_none() && part.may_leave() {
            let first = first + 1;
            return from_member(members, first, at, before, &mut |rest| then(&mut MayLeave { part, rest }));
        }
        if let Some(factors) = part.factors().and_then(|factors| before.and(factors)) {
            return from_member(members, first + 1, at, factors, then);
        }
        from_member(members, first + 1, at, Factors::default(), &mut |rest| link(first, before, part, rest, then));
    });
}

/// A member that leaves most tiles as they are, and those that come after it: they read a tile that is left where it
/// lies.
struct MayLeave<'p, 'r, C: Real> {
    part: &'p mut dyn InPiece<C>,
    rest: &'r mut dyn InPiece<C>,
}

impl<C: Real> MayLeave<'_, '_, C> {
    fn own(&mut self, tile: &mut Tile<'_, C>) {
        if !self.part.leaves(tile) {
            self.part.tile(tile);
        }
    }
}

impl<C: Real> InPiece<C> for MayLeave<'_, '_, C> {
    fn tile(&mut self, tile: &mut Tile<'_, C>) {
        self.own(tile);
        self.rest.tile(tile);
    }

    fn part(&mut self) -> &mut (dyn InPiece<C> + '_) {
        self
    }

    fn takes(&self) -> Takes {
        self.rest.takes().min(self.part.takes())
    }

    unsafe fn add(&mut self, tile: &mut Tile<'_, C>, params: Params, around: &Scale<C>) {
        if !around.starts() {
            // SAFETY: by the caller's promise.
            return unsafe { add_apart(self, tile, params, around) };
        }
        self.own(tile);
        // SAFETY: as above.
        unsafe { self.rest.add(tile, params, around) };
    }
}

/// A member and those that come after it, as one.
fn link<C: Real>(
    number: usize,
    before: Factors<C>,
    part: &mut dyn InPiece<C>,
    rest: &mut dyn InPiece<C>,
    then: &mut Then<'_, C>,
) {
    let after = rest.factors();
    let rest = if after.is_some() { None } else { Some(rest) };
    let scale = Scale { before, after: after.unwrap_or_default() };
    match number {
        0 => then(&mut Member::<C, 0> { part, scale, rest }),
        1 => then(&mut Member::<C, 1> { part, scale, rest }),
        2 => then(&mut Member::<C, 2> { part, scale, rest }),
        3 => then(&mut Member::<C, 3> { part, scale, rest }),
        4 => then(&mut Member::<C, 4> { part, scale, rest }),
        5 => then(&mut Member::<C, 5> { part, scale, rest }),
        6 => then(&mut Member::<C, 6> { part, scale, rest }),
        _ => then(&mut Member::<C, 7> { part, scale, rest }),
    }
}

/// A member between neighbours that multiply, and those that come after it. There are several, by its number, though
/// each does the same: where all members are called from one place the processor cannot tell which comes next, and does
/// not begin its loop while it waits for memory.
struct Member<'p, 'r, C: Real, const NUMBER: usize> {
    part: &'p mut dyn InPiece<C>,
    scale: Scale<C>,
    rest: Option<&'r mut dyn InPiece<C>>,
}

impl<C: Real, const NUMBER: usize> Member<'_, '_, C, NUMBER> {
    fn own(&mut self, tile: &mut Tile<'_, C>, scale: &Scale<C>) {
        // The compiler makes one of functions that are alike.
        core::hint::black_box(NUMBER);
        self.part.tile_between(tile, scale);
    }
}

impl<C: Real, const NUMBER: usize> InPiece<C> for Member<'_, '_, C, NUMBER> {
    fn tile(&mut self, tile: &mut Tile<'_, C>) {
        let scale = self.scale;
        self.own(tile, &scale);
        if let Some(rest) = &mut self.rest {
            rest.tile(tile);
        }
    }

    fn part(&mut self) -> &mut (dyn InPiece<C> + '_) {
        self
    }

    fn tile_between(&mut self, tile: &mut Tile<'_, C>, around: &Scale<C>) {
        match (self.scale.between(around), &self.rest) {
            (Some(scale), None) => self.own(tile, &scale),
            _ => between(self, tile, around),
        }
    }

    fn takes(&self) -> Takes {
        let rest = self.rest.as_ref().map(|rest| rest.takes());
        rest.unwrap_or(Takes::Parts).min(self.part.takes())
    }

    unsafe fn add(&mut self, tile: &mut Tile<'_, C>, params: Params, around: &Scale<C>) {
        core::hint::black_box(NUMBER);
        let scale = self.scale;
        // SAFETY: by the caller's promise.
        unsafe {
            match (scale.between(around), &mut self.rest) {
                (Some(scale), None) => self.part.add(tile, params, &scale),
                (Some(Scale { before, after }), Some(rest)) => {
                    self.part.tile_between(tile, &Scale { before, ..Scale::default() });
                    rest.add(tile, params, &Scale { after, ..Scale::default() });
                }
                (None, _) => add_apart(self, tile, params, around),
            }
        }
    }

    unsafe fn add_at_once(&mut self, g: (&[C], usize), params: Params, around: &Scale<C>) -> bool {
        match (self.scale.between(around), &self.rest) {
            // SAFETY: by the caller's promise.
            (Some(scale), None) => unsafe { self.part.add_at_once(g, params, &scale) },
            _ => false,
        }
    }
}
