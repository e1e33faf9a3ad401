use core::ops::Range;

use crate::element::DType;
use crate::tree::{LeafSpec, Structure};

/// Elements of a chunk: large enough to amortize lookups, small enough that threads share a large leaf evenly. It fixes
/// the order of reductions, and so their results to the bit.
pub(crate) const CHUNK: usize = if SHORT { 4 * 1024 } else { 16 * 1024 };

/// True for short chunks: this crate's tests (`.cargo/config.toml`) spend most time in unoptimized loops over several.
const SHORT: bool = cfg!(debug_assertions)
    && matches!(option_env!("GRADCHAIN_SHORT_CHUNKS"), Some(asked) if matches!(asked.as_bytes(), b"1"));

/// Elements of a task, the unit of work stealing; less, down to half, if there are fewer tasks than threads.
#[cfg(feature = "rayon")]
const TASK: usize = 4 * CHUNK;

/// The parallelism threshold, in elements.
#[cfg(feature = "rayon")]
pub const PARALLEL_THRESHOLD: usize = 4 * TASK;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Chunk {
    pub(crate) leaf: usize,
    pub(crate) start: usize,
    pub(crate) len: usize,
    /// The index of the chunk's first element in the gradient, which holds only some rows if it is row-sparse.
    pub(crate) from: usize,
    /// The leaf's compute type, copied here to save a cache miss on the leaf's description.
    pub(crate) dtype: DType,
}

/// The chunks of the active leaves, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chunks {
    pub(crate) all: Vec<Chunk>,
    pub(crate) of_leaf: Vec<Range<usize>>,
    /// Elements before each chunk, and in all.
    before: Vec<usize>,
}

impl Chunks {
    pub(crate) fn new(structure: &Structure, active: &[bool]) -> Chunks {
        let mut chunks = Chunks::default();
        chunks.cut(structure, active, |_| None);
        chunks
    }

    /// Cuts the leaves, or only their `rows`, which ascend. Adjacent rows are cut at the elements of the whole leaf, so
    /// that sums over all rows are bitwise identical to those over the leaf.
    pub(crate) fn cut<'r>(
        &mut self,
        structure: &Structure,
        active: &[bool],
        rows: impl Fn(usize) -> Option<&'r [usize]>,
    ) {
        self.all.clear();
        self.of_leaf.clear();
        for (leaf, (spec, on)) in structure.leaves().iter().zip(active).enumerate() {
            let first = self.all.len();
            match rows(leaf).filter(|_| *on) {
                Some(rows) => {
                    let columns = spec.len() / spec.shape()[0].max(1);
                    let mut from = 0;
                    for run in rows.chunk_by(|row, next| row + 1 == *next) {
                        self.cut_range((leaf, spec), run[0] * columns, run.len() * columns, from);
                        from += run.len() * columns;
                    }
                }
                None => {
                    let here = if *on { spec.here() } else { 0..0 };
                    self.cut_range((leaf, spec), here.start, here.len(), here.start);
                }
            }
            self.of_leaf.push(first..self.all.len());
        }
        self.before.clear();
        let lens = self.all.iter().map(|chunk| chunk.len).chain([0]);
        self.before.extend(lens.scan(0, |sum, len| Some(core::mem::replace(sum, *sum + len))));
    }

    /// Cuts a range at the same elements as the whole leaf.
    fn cut_range(&mut self, (leaf, spec): (usize, &LeafSpec), mut start: usize, len: usize, mut from: usize) {
        let (end, dtype) = (start + len, spec.dtype().compute());
        while start < end {
            let len = (CHUNK - start % CHUNK).min(end - start);
            self.all.push(Chunk { leaf, start, len, from, dtype });
            (start, from) = (start + len, from + len);
        }
    }

    #[cfg(feature = "rayon")]
    pub(crate) fn elements(&self) -> usize {
        self.before.last().map_or(0, |all| *all)
    }

    #[cfg(feature = "rayon")]
    pub(crate) fn task(&self, threads: usize) -> usize {
        (self.elements() / threads).clamp(TASK / 2, TASK)
    }

    #[cfg(feature = "rayon")]
    pub(crate) fn tasks(&self, task: usize) -> Tasks<'_> {
        Tasks { before: &self.before, count: self.elements().div_ceil(task) }
    }
}

#[cfg(feature = "rayon")]
pub(crate) struct Tasks<'a> {
    before: &'a [usize],
    pub(crate) count: usize,
}

#[cfg(feature = "rayon")]
impl Tasks<'_> {
    pub(crate) fn chunks(&self, task: usize) -> Range<usize> {
        let all = self.before[self.before.len() - 1];
        let begins = |task: usize| match task {
            _ if task == self.count => self.before.len() - 1,
            _ => self.before.partition_point(|n| *n < all / self.count * task),
        };
        begins(task)..begins(task + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_cover_each_element_once_and_keep_to_their_leaves() {
        let tree = (vec![0.0_f32; CHUNK * 2 + 1], 1.0_f64, Vec::<f32>::new());
        let structure = Structure::of(&tree).unwrap();
        let chunks = Chunks::new(&structure, &[true; 3]);
        let lens: Vec<_> = chunks.all.iter().map(|p| (p.leaf, p.start, p.len)).collect();
        assert_eq!(lens, [(0, 0, CHUNK), (0, CHUNK, CHUNK), (0, 2 * CHUNK, 1), (1, 0, 1)]);
        assert_eq!(chunks.of_leaf, [0..3, 3..4, 4..4]);
        assert_eq!(Chunks::new(&structure, &[false, true, true]).of_leaf, [0..0, 0..1, 1..1]);
    }

    #[test]
    fn row_chunks_split_at_the_chunk_boundaries_of_the_leaf() {
        let structure = Structure::of(&(ndarray::Array2::<f32>::zeros((CHUNK, 3)), 1.0_f32)).unwrap();
        let mut chunks = Chunks::new(&structure, &[true; 2]);
        let whole: Vec<_> = chunks.all.clone();
        let mut cut = |rows: &[usize]| {
            chunks.cut(&structure, &[true; 2], |leaf| (leaf == 0).then_some(rows));
            chunks.all.clone()
        };
        assert_eq!(cut(&Vec::from_iter(0..CHUNK)), whole);
        let chunk = |start, len, from| Chunk { leaf: 0, start, len, from, dtype: DType::F32 };
        let last = Chunk { leaf: 1, start: 0, len: 1, from: 0, dtype: DType::F32 };
        // The row begins one element before the first cut.
        let row = CHUNK / 3;
        let rows = [chunk(0, 6, 0), chunk(12, 3, 6), chunk(CHUNK - 1, 1, 9), chunk(CHUNK, 5, 10), last];
        assert_eq!(cut(&[0, 1, 4, row, row + 1]), rows);
        assert_eq!(cut(&[]), [last]);
    }

    #[cfg(feature = "rayon")]
    #[test]
    fn tasks_have_as_many_elements() {
        let sizes = |sizes: &[usize]| {
            let leaves: Vec<_> = sizes.iter().map(|n| vec![0.0_f32; *n]).collect();
            let structure = Structure::of(&leaves).unwrap();
            Chunks::new(&structure, &vec![true; sizes.len()])
        };
        let few = sizes(&[8 * CHUNK]);
        assert_eq!([2, 3, 4, 16].map(|threads| few.task(threads)), [4 * CHUNK, 8 * CHUNK / 3, 2 * CHUNK, 2 * CHUNK]);
        assert_eq!(sizes(&[100 * PARALLEL_THRESHOLD]).task(16), TASK);
        let small = CHUNK / 160;
        let mut leaves = vec![small; 1000];
        leaves.push(8 * CHUNK);
        let chunks = sizes(&leaves);
        for (chunks, task) in [(&chunks, TASK), (&few, 2 * CHUNK), (&sizes(&[61 * CHUNK, 1, 0, 5]), 3 * CHUNK)] {
            let tasks = chunks.tasks(task);
            let all: Vec<_> = (0..tasks.count).flat_map(|i| tasks.chunks(i)).collect();
            assert_eq!(all, Vec::from_iter(0..chunks.all.len()));
            let elements = |i| chunks.all[tasks.chunks(i)].iter().map(|chunk| chunk.len).sum::<usize>();
            assert!((0..tasks.count).all(|i| elements(i).abs_diff(task) <= 2 * CHUNK));
        }
        let million = sizes(&[61 * CHUNK]);
        assert_eq!([2, 8, 16, 24].map(|n| million.tasks(million.task(n)).count), [16, 16, 16, 25]);
    }
}
