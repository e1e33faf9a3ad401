//! Multiplying updates by numbers that are the same for a whole leaf.
//!
//! Of a chain that is not one loop, many members do only that: learning rates, clips and trust ratios when they give
//! out. Neighbours of them are done in one loop, and those at the end of a chain where the updates are added to the
//! parameters.
#![allow(unsafe_code, reason = "parameters that are lent to be written; see `memory`")]

use super::InPiece;
use super::Tile;
use super::gives::Gives;
use super::in_piece::{Params, Takes, add_apart};
use super::isa::{Job, dispatch};
use crate::element::Real;

/// Numbers that every update is multiplied by, one after another.
#[derive(Clone, Copy, Debug)]
pub struct Factors<C> {
    /// Those that there are, and ones.
    all: [C; MOST],
    len: usize,
}

/// The most that are done together: a multiplication takes less than bringing an update from the cache and back.
const MOST: usize = 4;

impl<C: Real> Default for Factors<C> {
    fn default() -> Self {
        Factors { all: [C::one(); MOST], len: 0 }
    }
}

impl<C: Real> Factors<C> {
    pub(super) fn one(factor: C) -> Factors<C> {
        let mut factors = Factors { len: 1, ..Factors::default() };
        factors.all[0] = factor;
        factors
    }

    pub(super) fn is_none(self) -> bool {
        self.len == 0
    }

    /// These and then others, if there is room for so many.
    pub(super) fn and(mut self, later: Factors<C>) -> Option<Factors<C>> {
        let len = self.len + later.len;
        self.all.get_mut(self.len..len)?.copy_from_slice(&later.all[..later.len]);
        Some(Factors { len, ..self })
    }

    /// Multiplied by one after another, as their members would: what there is less than the most is ones, which change
    /// no number.
    #[inline(always)]
    pub(super) fn of(self, u: C) -> C {
        self.all.into_iter().fold(u, |u, factor| factor * u)
    }
}

/// What updates are multiplied by before and after what something does to them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scale<C: Real> {
    pub(super) before: Factors<C>,
    pub(super) after: Factors<C>,
}

impl<C: Real> Scale<C> {
    /// These between others, if there is room for so many.
    pub(super) fn between(&self, around: &Scale<C>) -> Option<Scale<C>> {
        Some(Scale { before: around.before.and(self.before)?, after: self.after.and(around.after)? })
    }

    /// Whether nothing is done before.
    pub(super) fn starts(&self) -> bool {
        self.before.is_none()
    }

    /// How a loop gives out updates between these, if there is no more than one on each side.
    pub(super) fn of_loop(&self) -> Option<Gives<C>> {
        let [before, after] = [self.before, self.after].map(|factors| (factors.len < 2).then_some(factors.all[0]));
        Some(Gives::between(before?, after?))
    }
}

/// A part that multiplies.
pub(super) struct Times<C>(pub(super) Factors<C>);

impl<C: Real> InPiece<C> for Times<C> {
    fn tile(&mut self, tile: &mut Tile<'_, C>) {
        if !self.0.is_none() {
            let (isa, factors) = (tile.isa, self.0);
            let (from, to) = tile.io();
            dispatch(isa, Multiply { factors, from, to });
        }
    }

    fn part(&mut self) -> &mut (dyn InPiece<C> + '_) {
        self
    }

    fn takes(&self) -> Takes {
        Takes::Parts
    }

    unsafe fn add(&mut self, tile: &mut Tile<'_, C>, params: Params, Scale { before, after }: &Scale<C>) {
        let all = before.and(self.0).and_then(|factors| factors.and(*after));
        // SAFETY: by the caller's promise.
        unsafe {
            match all {
                Some(after) => add_apart(&mut (), tile, params, &Scale { after, ..Scale::default() }),
                None => add_apart(self, tile, params, &Scale { before: *before, after: *after }),
            }
        }
    }

    fn factors(&self) -> Option<Factors<C>> {
        Some(self.0)
    }
}

struct Multiply<'a, C> {
    factors: Factors<C>,
    from: &'a [C],
    to: &'a mut [C],
}

impl<C: Real> Job for Multiply<'_, C> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        let Multiply { factors, from, to } = self;
        let from = &from[..to.len()];
        for i in 0..to.len() {
            to[i] = factors.of(from[i]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_are_multiplied_by_in_order() {
        let [a, b] = [1.1_f32, -0.7].map(Factors::one);
        let both = a.and(b).expect("there is room");
        for u in [3.3_f32, -1e-39, f32::MAX, -0.0, f32::NEG_INFINITY] {
            assert_eq!(both.of(u).to_bits(), (-0.7 * (1.1 * u)).to_bits());
            assert_eq!(Factors::default().of(u).to_bits(), u.to_bits());
        }
        assert!(Factors::<f32>::default().of(f32::NAN).is_nan() && Factors::one(f32::NAN).of(0.0).is_nan());
    }

    #[test]
    fn there_is_room_for_so_many() {
        let two = Factors::one(2.0_f64).and(Factors::one(3.0)).expect("there is room");
        let four = two.and(two).expect("there is room");
        assert_eq!(four.of(1.0), 36.0);
        assert!(four.and(Factors::one(1.0)).is_none() && four.and(Factors::default()).is_some());
    }
}
