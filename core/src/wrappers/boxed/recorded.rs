//! A box whose passes are recorded.

use super::Held;
use super::stage::BoxedStage;
use crate::element::Real;
use crate::engine::recorded::on_tile;
use crate::engine::{Stage, StageChunk, Then, Tile};
use crate::needs::Needs;
use crate::program::{ErasedTile, OnTile, Traced};

/// Runs a box for a recording type, by line numbers.
pub(super) fn prepare_chunk<N: Needs, C: Real>(
    &BoxedStage { inside, state, at }: &BoxedStage<'_, N>,
    then: &mut Then<'_, C>,
    number: fn(C) -> u32,
    line: fn(u32) -> C,
) {
    then(&mut |tile| ErasedTile::of(tile, number, line, |tile| inside.dyn_recorded_tile(state, at, tile)));
}

/// Runs the transformation in a box on a recorded element.
pub(super) fn run<T: Stage>(inside: &T, held: &Held<T>, at: StageChunk, tile: &mut ErasedTile) {
    tile.with(&RecordedTile { inside, state: &held.state, run: held.run(), at });
}

struct RecordedTile<'a, T: Stage> {
    inside: &'a T,
    state: &'a T::State,
    run: &'a T::Run,
    at: StageChunk,
}

impl<T: Stage> OnTile for RecordedTile<'_, T> {
    fn single(&self, tile: &mut Tile<'_, Traced<f32>>) {
        on_tile(self.inside, (self.state, self.run), self.at.place, self.at.range, tile);
    }

    fn double(&self, tile: &mut Tile<'_, Traced<f64>>) {
        on_tile(self.inside, (self.state, self.run), self.at.place, self.at.range, tile);
    }
}
