//! Leaves that share memory.

use core::ops::Range;

use super::{Tree, Walk};
use crate::error::{Error, Result};
use crate::layout::{Cursor, Difference, Run, dense_strides};
use crate::tree::LeafParts;

/// Refuses leaves that share elements, as clones of an `ArcArray` do: writing to one would split one parameter into
/// two.
pub(crate) fn refuse_shared<'a>(tree: &dyn Fn(&mut Walk<'a, '_>)) -> Result<()> {
    let found: Vec<Difference> = sharing_by(tree).into_iter().map(Difference::from).collect();
    if found.is_empty() {
        return Ok(());
    }
    let what = "leaves of the parameters share memory, which a step would separate; tie them with `tree::Tied`, show \
                only one of them, or make copies";
    Err(Error::structure(what, found))
}

/// A leaf that shares elements with an earlier one.
pub(crate) struct Sharing {
    pub(crate) path: String,
    pub(crate) with: String,
    /// True for the same elements in the same order.
    pub(crate) clones: bool,
}

impl From<Sharing> for Difference {
    fn from(Sharing { path, with, .. }: Sharing) -> Difference {
        Difference::Shared { path, with }
    }
}

/// Returns the leaves that share memory.
///
/// A walk over the leaves; elements are compared only for overlapping leaves with gaps.
pub(crate) fn sharing<T: Tree + ?Sized>(tree: &T) -> Vec<Sharing> {
    sharing_by(&|walk| tree.walk(walk))
}

/// As [`sharing`], for a tree behind its walk; compiled once.
fn sharing_by<'a>(tree: &dyn Fn(&mut Walk<'a, '_>)) -> Vec<Sharing> {
    let mut leaves = Vec::new();
    tree(&mut Walk::new(&mut String::new(), &mut |path, leaf| {
        if leaf.parts.data.len() > 0 {
            leaves.push(LeafExtent { path: path.to_owned(), extent: extent(&leaf.parts), parts: leaf.parts });
        }
    }));
    find_sharing(leaves)
}

/// As [`sharing`], for leaves in order.
fn find_sharing(mut leaves: Vec<LeafExtent>) -> Vec<Sharing> {
    // Leaves with the same start keep their order.
    leaves.sort_by_key(|leaf| leaf.extent.start);
    let (mut found, mut rest) = (Vec::new(), &leaves[..]);
    while let Some(first) = rest.first() {
        let (mut end, mut across) = (first.extent.end, 1);
        while let Some(next) = rest.get(across).filter(|next| next.extent.start < end) {
            (end, across) = (end.max(next.extent.end), across + 1);
        }
        if across > 1 {
            find_overlaps(&rest[..across], end, &mut found);
        }
        rest = &rest[across..];
    }
    found
}

/// A leaf, and its byte range.
struct LeafExtent {
    path: String,
    extent: Range<isize>,
    parts: LeafParts,
}

/// Returns the bytes from a leaf's first element in memory to its last.
pub(super) fn extent(parts: &LeafParts) -> Range<isize> {
    let (mut least, mut most) = (0, 0);
    for (len, stride) in parts.shape.iter().zip(&parts.strides) {
        let far = (*len as isize - 1) * stride;
        least += far.min(0);
        most += far.max(0);
    }
    let (first, size) = (parts.data.address() as isize, parts.data.dtype().size() as isize);
    first + least * size..first + (most + 1) * size
}

/// Finds, among leaves with overlapping extents, those that share an element with an earlier one.
fn find_overlaps(leaves: &[LeafExtent], end: isize, found: &mut Vec<Sharing>) {
    let start = leaves[0].extent.start;
    // Clones begin at the same place; no comparison is needed.
    let clones = leaves.iter().enumerate().filter_map(|(i, leaf)| {
        let is_clone = |before: &&LeafExtent| before.parts.data.address() == leaf.parts.data.address();
        Some(shared(leaf, leaves[..i].iter().find(is_clone)?))
    });
    let before = found.len();
    found.extend(clones);
    if found.len() > before {
        return;
    }
    let mut taken = vec![0_u64; (end - start) as usize / 64 + 1];
    let bit = |place: isize| ((place - start) as usize / 64, 1 << ((place - start) % 64));
    for (i, leaf) in leaves.iter().enumerate() {
        let is_taken = |place: &isize| taken[bit(*place).0] & bit(*place).1 != 0;
        if let Some(place) = leaf.places().find(is_taken) {
            found.extend(
                leaves[..i].iter().find(|before| before.places().any(|x| x == place)).map(|of| shared(leaf, of)),
            );
        }
        leaf.places().for_each(|place| taken[bit(place).0] |= bit(place).1);
    }
}

fn shared(leaf: &LeafExtent, with: &LeafExtent) -> Sharing {
    let (of, other) = (&leaf.parts, &with.parts);
    let same_data = of.data.address() == other.data.address() && of.data.dtype() == other.data.dtype();
    let clones = same_data && of.shape == other.shape && of.strides == other.strides;
    Sharing { path: leaf.path.clone(), with: with.path.clone(), clones }
}

impl LeafExtent {
    fn places(&self) -> impl Iterator<Item = isize> {
        let LeafParts { data, shape, strides } = &self.parts;
        let (first, size) = (data.address() as isize, data.dtype().size() as isize);
        let mut cursor = Cursor::new(shape, &dense_strides(shape), strides, 0);
        let runs: Vec<Run> = cursor.take(data.len()).collect();
        let places = move |run: Run| (0..run.len as isize).map(move |i| first + (run.offset + i * run.stride) * size);
        runs.into_iter().flat_map(places)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::{ArcArray2, Array2, ArrayView2, s};

    fn message<T: Tree>(tree: &T) -> Option<String> {
        refuse_shared(&|walk| tree.walk(walk))
            .err()
            .map(|error| error.to_string().lines().skip(1).collect::<Vec<_>>().join("|"))
    }

    #[test]
    fn leaves_that_share_an_element_are_found_and_others_are_not() {
        let shared = ArcArray2::<f32>::zeros((4, 6));
        let parts = |a, b| message(&(ArcArray2::<f32>::zeros((4, 6)), a, b));
        let turned = shared.clone().reversed_axes();
        assert_eq!(parts(shared.clone(), turned.clone()), Some("  2: shares memory with `1`".into()));
        assert_eq!(parts(shared.clone(), ArcArray2::zeros((4, 6))), None);
        assert_eq!(parts(shared.clone(), shared.to_owned().into_shared()), None);

        // Adjacent, overlapping without and with a common element, backwards.
        let chunk = |slice: ndarray::SliceInfo<_, _, _>| shared.clone().slice_move(slice);
        assert_eq!(parts(chunk(s![..2, ..]), chunk(s![2.., ..])), None);
        assert_eq!(parts(chunk(s![.., 0..6;2]), chunk(s![.., 1..6;2])), None);
        assert_eq!(parts(chunk(s![.., ..3]), chunk(s![.., 3..])), None);
        assert!(parts(chunk(s![.., ..4]), chunk(s![.., 3..])).is_some());
        assert!(parts(chunk(s![..3, ..]), chunk(s![2..;-1, ..;-1])).is_some());
        assert!(parts(chunk(s![3.., ..]), chunk(s![..;-1, ..])).is_some());

        // Empty leaves have no place.
        assert_eq!(parts(chunk(s![..0, ..]), chunk(s![..0, ..])), None);
        let array = Array2::<f64>::zeros((2, 2));
        let views: Vec<ArrayView2<'_, f64>> = vec![array.view(); 3];
        assert_eq!(message(&views), Some("  1: shares memory with `0`|  2: shares memory with `0`".into()));
    }
}
