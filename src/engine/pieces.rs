//! How the work of a pass is cut.

use core::ops::Range;

use crate::tree::Structure;

/// Elements of a piece: enough that what is worked out once for each costs nothing, few enough that threads share a
/// large leaf evenly. It fixes the order in which sums are added, and so their bits.
const PIECE: usize = 16 * 1024;

/// A stretch of one leaf.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Piece {
    pub(crate) leaf: usize,
    pub(crate) start: usize,
    pub(crate) len: usize,
}

/// The active leaves, cut into pieces, in order.
#[derive(Clone, Debug)]
pub(crate) struct Pieces {
    pub(crate) all: Vec<Piece>,
    pub(crate) of_leaf: Vec<Range<usize>>,
}

impl Pieces {
    pub(crate) fn new(structure: &Structure, active: &[bool]) -> Pieces {
        let (mut all, mut of_leaf) = (Vec::new(), Vec::new());
        for (leaf, (spec, on)) in structure.leaves().iter().zip(active).enumerate() {
            let first = all.len();
            let len = if *on { spec.len() } else { 0 };
            all.extend((0..len).step_by(PIECE).map(|start| Piece { leaf, start, len: PIECE.min(len - start) }));
            of_leaf.push(first..all.len());
        }
        Pieces { all, of_leaf }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_each_element_once_and_keep_to_their_leaves() {
        let tree = (vec![0.0_f32; PIECE * 2 + 1], 1.0_f64, Vec::<f32>::new());
        let structure = Structure::of(&tree).unwrap();
        let pieces = Pieces::new(&structure, &[true; 3]);
        let lens: Vec<_> = pieces.all.iter().map(|p| (p.leaf, p.start, p.len)).collect();
        assert_eq!(lens, [(0, 0, PIECE), (0, PIECE, PIECE), (0, 2 * PIECE, 1), (1, 0, 1)]);
        assert_eq!(pieces.of_leaf, [0..3, 3..4, 4..4]);
        assert_eq!(Pieces::new(&structure, &[false, true, true]).of_leaf, [0..0, 0..1, 1..1]);
    }
}
