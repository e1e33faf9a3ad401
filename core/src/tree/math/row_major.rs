//! Leaves as short dense chunks of `f64`, so that one vectorized loop sums all.

use crate::element::{Element, with_dtype};
use crate::tree::{Cursor, LeafMut, LeafRef, Run, Tree, TreeMut, Walk, WalkMut, dense_strides, is_dense};

use super::super::leaf::LeafParts;

/// The maximum number of elements of a chunk.
pub const ROW_MAJOR_CHUNK: usize = 512;

/// Returns the leaves of a tree.
pub fn leaves<T: Tree + ?Sized>(tree: &T) -> Vec<LeafRef<'_>> {
    let mut leaves = Vec::new();
    tree.walk(&mut Walk::new(&mut String::new(), &mut |_, leaf| leaves.push(leaf)));
    leaves
}

/// Returns the mutable leaves of a tree.
pub fn leaves_mut<T: TreeMut + ?Sized>(tree: &mut T) -> Vec<LeafMut<'_>> {
    let mut leaves = Vec::new();
    tree.walk_mut(&mut WalkMut::new(&mut String::new(), &mut |_, leaf| leaves.push(leaf)));
    leaves
}

/// Reads a leaf in row-major order, in chunks that depend on its shape alone.
pub(crate) struct RowMajorChunks<'a> {
    leaf: LeafRef<'a>,
    row_runs: RowMajorRuns,
    start: usize,
    buffer: [f64; ROW_MAJOR_CHUNK],
}

impl<'a> RowMajorChunks<'a> {
    pub(crate) fn of(leaf: &LeafRef<'a>) -> RowMajorChunks<'a> {
        RowMajorChunks {
            leaf: leaf.clone(),
            row_runs: RowMajorRuns::new(&leaf.parts),
            start: 0,
            buffer: [0.0; ROW_MAJOR_CHUNK],
        }
    }

    /// Returns the next chunk; empty after the last.
    pub(crate) fn next(&mut self) -> &[f64] {
        let row_major = self.row_runs.row_major(&mut self.buffer, self.start);
        // SAFETY: the leaf is borrowed, and the road stays inside its shape.
        #[allow(unsafe_code, reason = "strided memory; see `memory`")]
        unsafe {
            self.row_runs.load(&self.leaf.parts, self.start, row_major);
        }
        self.start += row_major.len();
        row_major
    }
}

/// Calls `each` with the index of each row-major chunk's first element, and the chunk.
pub fn read(leaf: &LeafRef<'_>, mut each: impl FnMut(usize, &[f64])) {
    let mut chunks = RowMajorChunks::of(leaf);
    (0..leaf.parts.data.len()).step_by(ROW_MAJOR_CHUNK).for_each(|start| each(start, chunks.next()));
}

/// As [`read`], for chunks to overwrite, which are rounded to the leaf's dtype.
pub fn rewrite(leaf: &mut LeafMut<'_>, mut each: impl FnMut(usize, &mut [f64])) {
    let parts = &leaf.parts;
    let (mut row_runs, mut back, mut buffer) =
        (RowMajorRuns::new(parts), RowMajorRuns::new(parts), [0.0; ROW_MAJOR_CHUNK]);
    for start in (0..parts.data.len()).step_by(ROW_MAJOR_CHUNK) {
        let row_major = row_runs.row_major(&mut buffer, start);
        // SAFETY: the leaf is borrowed exclusively, and the roads stay inside its shape.
        #[allow(unsafe_code, reason = "strided memory; see `memory`")]
        unsafe {
            row_runs.load(parts, start, row_major);
            each(start, row_major);
            back.store(parts, start, row_major);
        }
    }
}

struct RowMajorRuns {
    /// The cursor, unless the leaf is dense.
    cursor: Option<Cursor>,
    len: usize,
}

impl RowMajorRuns {
    fn new(leaf: &LeafParts) -> RowMajorRuns {
        let order = dense_strides(&leaf.shape);
        let dense = is_dense(&leaf.shape, &leaf.strides, &order);
        let cursor = (!dense).then(|| Cursor::new(&leaf.shape, &order, &leaf.strides, 0));
        RowMajorRuns { cursor, len: leaf.data.len() }
    }

    fn row_major<'b>(&self, buffer: &'b mut [f64; ROW_MAJOR_CHUNK], start: usize) -> &'b mut [f64] {
        &mut buffer[..ROW_MAJOR_CHUNK.min(self.len.saturating_sub(start))]
    }

    fn runs(&mut self, start: usize, len: usize, mut each: impl FnMut(Run)) {
        match &mut self.cursor {
            None => each(Run { offset: start as isize, stride: 1, len }),
            Some(cursor) => cursor.take(len).for_each(each),
        }
    }

    /// # Safety
    ///
    /// `leaf` is that for which this road was made, and has no concurrent writer.
    #[allow(unsafe_code, reason = "strided memory; see `memory`")]
    unsafe fn load(&mut self, leaf: &LeafParts, start: usize, to: &mut [f64]) {
        let (view, len) = (leaf.view(), to.len());
        let mut to = to.iter_mut();
        with_dtype!(leaf.data.dtype(), T => self.runs(start, len, |run| {
            // SAFETY: by the caller's promise.
            unsafe { view.read::<T>(run, |x| to.next().into_iter().for_each(|to| *to = x.as_f64())) }
        }));
    }

    /// # Safety
    ///
    /// As [`load`](RowMajorRuns::load), without a concurrent reader.
    #[allow(unsafe_code, reason = "strided memory; see `memory`")]
    unsafe fn store(&mut self, leaf: &LeafParts, start: usize, from: &[f64]) {
        let (view, len) = (leaf.view(), from.len());
        let mut from = from.iter();
        with_dtype!(leaf.data.dtype(), T => self.runs(start, len, |run| {
            // SAFETY: by the caller's promise.
            unsafe { view.write::<T>(run, || T::from_f64(from.next().copied().unwrap_or_default())) }
        }));
    }
}
