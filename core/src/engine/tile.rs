use core::ops::Range;

use super::limits::MAX_SLOTS;
use super::prefetch::Prefetch;
use super::simd::SimdLevel;
use super::slots::SlotList;
use crate::element::{Contribution, Real, RecordedArray};

/// Elements of a tile: with its state, it fits in L1.
pub(crate) const TILE: usize = 1024;

/// Elements of a tile if several loops run and few arrays are converted.
pub(super) const SHORT: usize = 512;

/// Elements between tile buffers. The padding varies their offsets in a page: a load whose low address bits match a
/// recent store waits for it (4K aliasing).
pub(super) const STEP: usize = TILE + 80;

/// Scratch buffers for a tile's updates, parameters and state, converted to the compute type.
#[derive(Default)]
pub struct TileScratch {
    pub(crate) single: TileBuffers<f32>,
    pub(crate) double: TileBuffers<f64>,
}

/// Tile buffers, allocated on demand: clearing them can cost as much as a chunk's loop.
pub(crate) struct TileBuffers<C>(Option<Lines<C>>);

/// Aligned to a cache line: no vector load spans two.
#[repr(align(64))]
struct Lines<C>([C; STEP * (MAX_SLOTS + 3)]);

impl<C> Default for TileBuffers<C> {
    fn default() -> Self {
        TileBuffers(None)
    }
}

impl<C: Real> TileBuffers<C> {
    #[inline]
    pub(crate) fn all(&mut self) -> &mut [C] {
        if self.0.is_none() {
            self.make();
        }
        self.0.as_mut().map_or(&mut [], |lines| &mut lines.0)
    }

    /// Not inlined: the buffers pass through the stack, and so large a frame is probed at every call.
    #[cold]
    #[inline(never)]
    fn make(&mut self) {
        self.0 = Some(Lines([C::zero(); _]));
    }
}

/// A slice of one leaf's updates with its parameters.
///
/// A stage rewrites [`u`](Tile::u). Elements are in the leaf's memory order.
pub struct Tile<'t, C> {
    pub(crate) leaf: usize,
    pub(crate) start: usize,
    /// The updates if not in `u`: gradients read in place.
    pub(crate) source: Option<&'t [C]>,
    pub(crate) u: &'t mut [C],
    /// The second update buffer: a loop reads `u`, writes `other`, and swaps them.
    pub(crate) other: &'t mut [C],
    /// True after an odd number of swaps.
    pub(crate) swapped: bool,
    pub(crate) p: &'t [C],
    pub(crate) sums: &'t mut [f64],
    /// True if all updates are zero, whatever `u` holds.
    pub(crate) zero: bool,
    pub(crate) added: bool,
    pub(crate) scratch: &'t mut [C],
    pub(crate) prefetch_address: usize,
    pub(crate) prefetcher: Option<&'t mut Prefetch>,
    pub(crate) simd: SimdLevel,
}

/// Computes an element's update, from its state and update, and its contributions.
pub(crate) type ElementUpdateFn<'a, C> = &'a dyn Fn(&mut [C], C, &mut [Contribution<C>]) -> C;

impl<'t, C: Real> Tile<'t, C> {
    /// Returns a tile of one recorded element.
    pub(crate) fn recorded_element(leaf: usize, u: &'t mut [C], p: &'t [C], simd: SimdLevel) -> Tile<'t, C> {
        let (other, sums, scratch): (&mut [C], &mut [f64], &mut [C]) = Default::default();
        let (swapped, zero, added, prefetcher) = (false, false, false, None);
        Tile {
            leaf,
            start: 0,
            source: None,
            u,
            other,
            swapped,
            p,
            sums,
            zero,
            added,
            scratch,
            prefetch_address: 0,
            prefetcher,
            simd,
        }
    }

    /// Returns the index of the leaf.
    pub fn leaf(&self) -> usize {
        self.leaf
    }

    /// Returns the index, in memory order, of the tile's first element.
    pub fn start(&self) -> usize {
        self.start
    }

    /// Returns the number of elements.
    #[allow(clippy::len_without_is_empty, reason = "a tile is never empty")]
    pub fn len(&self) -> usize {
        self.u.len()
    }

    /// Returns the updates, to rewrite, and the parameters.
    pub fn parts(&mut self) -> (&mut [C], &[C]) {
        self.materialize();
        (self.u, self.p)
    }

    pub(crate) fn input(&mut self) -> &[C] {
        if self.zero {
            self.materialize();
        }
        self.source.unwrap_or(self.u)
    }

    /// Records a part: its state in `arrays`, its update, and its contributions to `sums` of the chain.
    pub(crate) fn record(
        &mut self,
        arrays: &[Option<RecordedArray>],
        sums: Range<usize>,
        part: ElementUpdateFn<'_, C>,
    ) {
        self.materialize();
        let u = self.u[0];
        self.u[0] = C::record(arrays, sums, &|slots, terms| part(slots, u, terms));
    }

    /// Prefetches a share of the next tile, before a loop over this one.
    pub(crate) fn prefetch_share(&mut self) {
        if let Some(prefetcher) = &mut self.prefetcher {
            prefetcher.prefetch_share();
        }
    }

    pub(crate) fn reads(&mut self, arrays: &SlotList<'_>) {
        if let Some(prefetcher) = &mut self.prefetcher
            && prefetcher.is_first()
        {
            arrays.read(self.start, self.u.len(), prefetcher);
        }
    }

    pub(crate) fn materialize(&mut self) {
        let source = self.source.take();
        if core::mem::take(&mut self.zero) {
            self.u.fill(C::zero());
        } else if let Some(source) = source {
            self.u.copy_from_slice(source);
        }
    }

    /// Returns a loop's input and its output, which becomes `u`.
    pub(crate) fn io(&mut self) -> (&[C], &mut [C]) {
        if self.zero {
            self.materialize();
        }
        let Some(source) = self.source.take() else {
            core::mem::swap(&mut self.u, &mut self.other);
            self.swapped = !self.swapped;
            return (self.other, self.u);
        };
        (source, self.u)
    }

    /// As [`io`](Self::io), with an empty output if the loop writes none.
    pub(crate) fn input_output(&mut self, writes: bool) -> (&[C], &mut [C]) {
        if writes { self.io() } else { (self.input(), &mut []) }
    }

    /// Returns the updates, to rewrite.
    pub fn u(&mut self) -> &mut [C] {
        self.parts().0
    }

    /// Returns the reductions of this chunk; a stage's own start at its [`StageOffset::sum`](super::StageOffset::sum).
    pub fn sums(&mut self) -> &mut [f64] {
        self.sums
    }

    /// Makes the updates zero without writing them. Zero updates leave parameters unmodified.
    pub fn set_zero(&mut self) {
        self.zero = true;
    }
}
