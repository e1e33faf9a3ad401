//! The position of the tile driver: a chunk of a leaf, a member of a chain, a pass range.

use super::tile::Tile;
use super::{Place, Shape, Span};
use crate::memory::RawSlice;

/// A chunk on its way through one member of a chain in one pass.
#[derive(Clone, Copy, Debug)]
pub struct PieceAt {
    pub(crate) place: Place,
    pub(crate) span: Span,
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

impl PieceAt {
    /// Treats a tile as a chunk of its own.
    pub(crate) fn of_tile<C>(place: Place, span: Span, tile: &Tile<'_, C>) -> PieceAt {
        PieceAt { place, span, leaf: tile.leaf, next: Next::Read }
    }

    /// Returns the position behind a stage of this shape.
    pub(crate) fn after(self, shape: Shape) -> PieceAt {
        PieceAt { place: self.place.after(shape), ..self }
    }

    /// Returns the position for a stage that others follow.
    pub(crate) fn followed(self) -> PieceAt {
        let next = if matches!(self.next, Next::Dropped) { Next::Dropped } else { Next::Read };
        PieceAt { next, ..self }
    }

    /// Returns the position for a stage whose updates are read even if the pass drops them.
    pub(crate) fn read(self) -> PieceAt {
        PieceAt { next: Next::Read, ..self }
    }
}

/// Transforms a tile of a chunk. Tiles come in order.
pub type OnTile<'t, C> = dyn FnMut(&mut Tile<'_, C>) + 't;

/// Receives the function that transforms tiles, by reference: a chunk allocates nothing.
pub type Then<'t, C> = dyn FnMut(&mut OnTile<'_, C>) + 't;
