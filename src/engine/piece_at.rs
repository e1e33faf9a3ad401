//! Where a pass is.

use core::ops::Range;

use super::{Place, Shape, Span, Tile};

/// Which piece of which leaf, on its way through which part of which pass.
#[derive(Clone, Copy, Debug)]
pub struct PieceAt {
    pub(crate) place: Place,
    pub(crate) span: Span,
    pub(crate) leaf: usize,
    pub(crate) start: usize,
    pub(crate) len: usize,
    /// Whether a pass that ends inside a part has no use for its updates.
    pub(crate) drops: bool,
    /// To which sums of the chain earlier passes have added nothing in this piece.
    pub(crate) quiet: Quiet,
}

/// Some of the first sums of a chain, as bits.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quiet(u64);

impl Quiet {
    /// Those that are zero after an earlier pass.
    pub(crate) fn of(sums: &[f64]) -> Quiet {
        let bits = sums.iter().take(u64::BITS as usize).enumerate();
        Quiet(bits.fold(0, |bits, (i, sum)| bits | u64::from(*sum == 0.0) << i))
    }

    pub(super) fn has(self, sums: Range<usize>) -> bool {
        sums.into_iter().all(|i| i < u64::BITS as usize && self.0 >> i & 1 == 1)
    }
}

impl PieceAt {
    /// A tile as a piece of its own.
    pub(crate) fn of_tile<C>(place: Place, span: Span, tile: &Tile<'_, C>) -> PieceAt {
        PieceAt {
            place,
            span,
            leaf: tile.leaf,
            start: tile.start,
            len: tile.u.len(),
            drops: false,
            quiet: Quiet::default(),
        }
    }

    /// The same piece, for what follows a stage of this shape.
    pub(crate) fn after(self, shape: Shape) -> PieceAt {
        PieceAt { place: self.place.after(shape), ..self }
    }
}
