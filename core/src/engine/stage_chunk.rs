//! The position of the tile driver in a pass.

use super::tile::Tile;
use super::{PassRange, PassStructure, StageOffset};
use crate::memory::RawSlice;

/// A chunk on its way through one member of a chain in one pass.
#[derive(Clone, Copy, Debug)]
pub struct StageChunk {
    pub(crate) place: StageOffset,
    pub(crate) range: PassRange,
    pub(crate) leaf: usize,
    pub(crate) next: Next,
}

/// The destination of a stage's emitted updates.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Next {
    Read,
    /// Nobody reads them after this pass.
    Dropped,
    /// They are added to these parameters, of the compute type.
    Added(RawSlice),
}

impl StageChunk {
    pub(crate) fn after(self, shape: PassStructure) -> StageChunk {
        StageChunk { place: self.place.after(shape), ..self }
    }

    pub(crate) fn followed(self) -> StageChunk {
        let next = if matches!(self.next, Next::Dropped) { Next::Dropped } else { Next::Read };
        StageChunk { next, ..self }
    }

    /// Returns the position for a stage whose updates are read even in a pass that drops them.
    pub(crate) fn read(self) -> StageChunk {
        StageChunk { next: Next::Read, ..self }
    }
}

/// Transforms a tile of a chunk. Tiles come in order.
pub type OnTile<'t, C> = dyn FnMut(&mut Tile<'_, C>) + 't;

/// Receives the function that transforms tiles, by reference, to allocate nothing.
pub type Then<'t, C> = dyn FnMut(&mut OnTile<'_, C>) + 't;
