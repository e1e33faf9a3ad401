//! The position of the tile driver: a chunk of a leaf, a member of a chain, a pass range.

use super::tile::Tile;
use super::{PassRange, PassStructure, Place};
use crate::memory::RawSlice;

/// A chunk on its way through one member of a chain in one pass.
#[derive(Clone, Copy, Debug)]
pub struct ChunkAt {
    pub(crate) place: Place,
    pub(crate) span: PassRange,
    pub(crate) leaf: usize,
    pub(crate) next: Next,
}

/// The destination of the updates that a stage emits in a pass.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Next {
    /// Other stages or the driver read them.
    Read,
    /// Nobody reads them after this pass.
    Dropped,
    /// The updates are added to these parameters, which have the compute type.
    Added(RawSlice),
}

impl ChunkAt {
    /// Treats a tile as a chunk of its own.
    pub(crate) fn of_tile<C>(place: Place, span: PassRange, tile: &Tile<'_, C>) -> ChunkAt {
        ChunkAt { place, span, leaf: tile.leaf, next: Next::Read }
    }

    /// Returns the position behind a stage of this shape.
    pub(crate) fn after(self, shape: PassStructure) -> ChunkAt {
        ChunkAt { place: self.place.after(shape), ..self }
    }

    /// Returns the position for a stage that others follow.
    pub(crate) fn followed(self) -> ChunkAt {
        let next = if matches!(self.next, Next::Dropped) { Next::Dropped } else { Next::Read };
        ChunkAt { next, ..self }
    }

    /// Returns the position for a stage whose updates are read even if the pass drops them.
    pub(crate) fn read(self) -> ChunkAt {
        ChunkAt { next: Next::Read, ..self }
    }
}

/// Transforms a tile of a chunk. Tiles come in order.
pub type OnTile<'t, C> = dyn FnMut(&mut Tile<'_, C>) + 't;

/// Receives the function that transforms tiles, by reference: a chunk allocates nothing.
pub type Then<'t, C> = dyn FnMut(&mut OnTile<'_, C>) + 't;
