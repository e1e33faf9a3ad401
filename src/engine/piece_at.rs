//! Where the tile driver is: a piece of a leaf, in a part of a pass.

use super::tile::Tile;
use super::{Place, Shape, Span};
use crate::memory::RawSlice;

/// Which piece of which leaf, on its way through which part of which pass.
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
    /// They are added to the parameters, which are these and of the type that is calculated with.
    Added(RawSlice),
}

impl PieceAt {
    /// A tile as a piece of its own.
    pub(crate) fn of_tile<C>(place: Place, span: Span, tile: &Tile<'_, C>) -> PieceAt {
        PieceAt { place, span, leaf: tile.leaf, next: Next::Read }
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
