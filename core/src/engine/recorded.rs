//! A step whose passes are recorded, for a device.

use core::ops::Range;

use super::context::StepContext;
use super::drive::{ErasedChain, RunningChain};
use super::remote::OnDevice;
use super::stage_chunk::{Next, OnTile, StageChunk};
use super::tile::{Tile, TileScratch};
use super::walk::Walk;
use super::{Emission, Outcome, PassRange, Stage, StageOffset, Sums, WholeTree};
use crate::element::Real;
use crate::error::{Error, Result};
use crate::tree::Structure;

pub(crate) use super::chunks::CHUNK;
pub(crate) use super::pass::Pass;
pub use super::remote::{Line, RemoteLeaf, RemoteTree};
pub(crate) use super::sums::sum_tile;
pub(crate) use super::tile::TILE;
pub(crate) use super::whole::NOT_REMOTE;

/// A device that runs the passes of a chain.
pub(crate) trait Remote<T: Stage>: RemoteTree {
    /// Returns a pass's contribution to each sum of each chunk; `None` if it failed.
    fn pass(&mut self, pass: &Pass<'_, T>) -> Option<Vec<f64>>;
    /// Executes the whole-leaf work of a barrier; returns `None` if it failed.
    fn leaves(&mut self, barrier: usize) -> Option<()>;
    fn error(&mut self) -> Option<Error>;
}

/// A chain in a step on a device.
pub(crate) struct RunningOnDevice<'a, 'r, T: Stage> {
    chain: RunningChain<'a, T>,
    device: &'a mut (dyn Remote<T> + 'r),
}

impl<'a, 'r, T: Stage> RunningOnDevice<'a, 'r, T> {
    pub(crate) fn new(transformation: &'a T, state: &'a mut T::State, device: &'a mut (dyn Remote<T> + 'r)) -> Self {
        RunningOnDevice { chain: RunningChain::new(transformation, state), device }
    }
}

impl<T: Stage> ErasedChain for RunningOnDevice<'_, '_, T> {
    fn check(&self, at: &StepContext<'_>) -> Result<()> {
        self.chain.check(at)
    }

    fn begin(&mut self, at: &StepContext<'_>) {
        self.chain.begin(at);
    }

    fn is_on_host(&self) -> bool {
        false
    }

    fn emission(&self) -> Emission {
        self.chain.emission()
    }

    fn pass(&mut self, walk: Walk<'_>, _: &mut TileScratch) -> Option<Vec<f64>> {
        let RunningChain { transformation, state, run } = &self.chain;
        self.device.pass(&Pass::of(*transformation, (&**state, run.as_ref()?), &walk))
    }

    fn barrier(&mut self, at: &StepContext<'_>, number: usize, sums: Sums<'_>, tree: &mut WholeTree<'_>) -> bool {
        let active = tree.active;
        let tree = &mut WholeTree { device: OnDevice::of(&mut *self.device), ..tree.with_active(active) };
        self.chain.barrier(at, number, sums, tree) && self.device.leaves(number).is_some()
    }

    fn finish(&mut self, sums: Sums<'_>, outcome: &mut Outcome) {
        self.chain.finish(sums, outcome);
    }

    fn error(&mut self) -> Option<Error> {
        self.device.error()
    }
}

impl<T: Stage> Pass<'_, T> {
    pub(crate) fn structure(&self) -> &Structure {
        self.walk.structure
    }

    pub(crate) fn number(&self) -> usize {
        self.walk.range.to
    }

    /// Returns the number of reductions, and the chunks of each leaf.
    pub(crate) fn sums(&self) -> (usize, &[Range<usize>]) {
        (self.walk.shape.sums, &self.walk.chunks.of_leaf)
    }

    /// Returns whether the pass reads stored updates, and whether it stores updates.
    pub(crate) fn reads_and_writes_stored(&self) -> [bool; 2] {
        [self.walk.shape.starts_from_stored(self.walk.range), self.walk.stores()]
    }

    /// Returns the update of one recorded element; the flag is true if it is added to the parameter.
    pub(crate) fn record<C: Real>(&self, leaf: usize, u: C, p: C) -> (C, bool) {
        let (mut u, p) = ([u], [p]);
        let mut tile = Tile::recorded_element(leaf, &mut u, &p, self.walk.simd);
        on_tile(self.transformation, (self.state, self.run), StageOffset::default(), self.walk.range, &mut tile);
        let adds_to_params = self.walk.is_last() && !self.walk.ends && !tile.zero;
        tile.materialize();
        (u[0], adds_to_params)
    }
}

/// Runs a stage on one tile.
pub(crate) fn on_tile<S: Stage, C: Real>(
    stage: &S,
    (state, run): (&S::State, &S::Run),
    place: StageOffset,
    range: PassRange,
    tile: &mut Tile<'_, C>,
) {
    let at = StageChunk { place, range, leaf: tile.leaf, next: Next::Read };
    stage.prepare_chunk(state, run, at, &mut on_one(tile));
}

/// Returns a function that runs a part on one tile. Not generic over the stage: rustc instantiates three functions for
/// a closure behind `dyn`.
fn on_one<C: Real>(tile: &mut Tile<'_, C>) -> impl FnMut(&mut OnTile<'_, C>) {
    |part| part(tile)
}
