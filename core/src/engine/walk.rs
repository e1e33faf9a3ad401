//! A pass over the leaves, compiled once for all chains.
#![allow(unsafe_code, reason = "disjoint slices of raw leaves on many threads; see `memory`")]

use core::ops::Range;
use std::borrow::Cow;

#[cfg(feature = "rayon")]
use super::chunks::PARALLEL_THRESHOLD;
use super::chunks::{Chunk, Chunks};
use super::convert::store;
use super::leaf::{TableLeaf, is_among, read_chunk};
use super::prefetch::Prefetch;
use super::simd::SimdLevel;
use super::sink::{Sink, add_chunk, store_chunk};
use super::stage_chunk::OnTile;
use super::tile::{STEP, TILE, TileScratch};
use super::{PassRange, PassStructure, Tile};
use crate::element::Real;
use crate::memory::{Buffer, RawSlice};
#[cfg(feature = "rayon")]
use crate::numeric::split::{is_parallel, parallel_for, threads};
use crate::tree::Structure;

/// The leaves, range and output of a pass.
pub struct Walk<'a> {
    pub(super) structure: &'a Structure,
    pub(super) chunks: &'a Chunks,
    pub(super) params: &'a [TableLeaf],
    pub(super) grads: &'a [TableLeaf],
    pub(super) absent: &'a [bool],
    pub(super) stored: &'a [Buffer],
    pub(super) sums: RawSlice,
    pub(super) range: PassRange,
    /// The input; `None` if the pass needs no updates, or starts behind a stage that keeps them itself.
    pub(super) start: Option<Start>,
    /// True if chunks run from last to first, because the last are cached. Sums are kept by chunk, so results do not
    /// depend on the order.
    pub(super) backwards: bool,
    pub(super) shape: PassStructure,
    /// True if this pass is the last, because all updates are zero.
    pub(super) ends: bool,
    pub(super) sink: Sink<'a>,
    /// The leaves of the pass; empty for all.
    pub(super) only: &'a [usize],
    pub(super) simd: SimdLevel,
}

#[derive(Clone, Copy)]
struct Source<'a> {
    /// The gradients or stored updates.
    leaf: Option<&'a TableLeaf>,
    /// True if the pass stores updates.
    stores: bool,
    /// True if a stage reads parameters in the pass.
    reads_params: bool,
}

/// Chunks that a backward pass runs forwards before it steps back. Hardware prefetchers restart where the order breaks:
/// with runs of one chunk, a pass takes 1.5 times as long on AMD Zen 5. The caches hold 16 chunks.
const FORWARD_RUN: usize = 16;

#[derive(Clone, Copy)]
pub(super) enum Start {
    Gradients,
    Stored,
}

impl Start {
    pub(super) fn of(shape: PassStructure, range: PassRange) -> Option<Start> {
        match range.from {
            _ if !shape.needs_updates(range.to) => None,
            0 => Some(Start::Gradients),
            _ => shape.starts_from_stored(range).then_some(Start::Stored),
        }
    }
}

/// Runs a chunk; its index selects its sums.
pub(super) type EachChunk<'a> = dyn Fn(usize, &Chunk, &mut TileScratch) + Sync + 'a;

impl Walk<'_> {
    pub(super) fn run(&self, each: &EachChunk<'_>, scratch: &mut TileScratch) {
        let all = 0..self.chunks.all.len();
        #[cfg(feature = "rayon")]
        if is_parallel(self.chunks.elements(), PARALLEL_THRESHOLD) {
            let tasks = self.chunks.tasks(self.chunks.task(threads()));
            return parallel_for(0..tasks.count, self.backwards, &|task| self.run_task(each, tasks.chunks(task)));
        }
        self.run_range(each, all, scratch);
    }

    fn run_range(&self, each: &EachChunk<'_>, chunks: Range<usize>, scratch: &mut TileScratch) {
        let mut one = |i: usize| {
            let chunk = &self.chunks.all[i];
            if self.only.is_empty() || self.only.contains(&chunk.leaf) {
                each(i, chunk, scratch);
            }
        };
        if !self.backwards {
            return chunks.for_each(one);
        }
        let mut end = chunks.end;
        while end > chunks.start {
            let start = end.saturating_sub(FORWARD_RUN).max(chunks.start);
            (start..end).for_each(&mut one);
            end = start;
        }
    }

    /// Not inlined: the scratch buffers would enlarge each frame of the recursive split, and a dozen such frames, with
    /// the tasks that a waiting thread runs on top, overflow a stack of 2 MiB.
    #[cfg(feature = "rayon")]
    #[inline(never)]
    fn run_task(&self, each: &EachChunk<'_>, chunks: Range<usize>) {
        self.run_range(each, chunks, &mut TileScratch::default());
    }

    /// Returns true if a chain of this shape runs this pass identically: with the same barriers, reductions, and stored
    /// updates before and after.
    pub(super) fn is_of(&self, shape: PassStructure) -> bool {
        let (own, to) = (self.shape, self.range.to);
        let sums = |shape: PassStructure| (shape.barriers, shape.sums, shape.reduces, shape.counts);
        let stores = |shape: PassStructure| (shape.stores(to), shape.drops(to), shape.starts_from_stored(self.range));
        sums(own) == sums(shape) && shape.range(to) == self.range && stores(own) == stores(shape)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.shape.is_idle(self.range.to) && !self.ends
    }

    pub(super) fn stores(&self) -> bool {
        self.shape.stores(self.range.to) && !self.ends
    }

    pub(super) fn writes_params(&self) -> bool {
        self.is_last() && !self.ends && matches!(self.sink, Sink::Params)
    }

    pub(super) fn is_last(&self) -> bool {
        self.range.to == self.shape.barriers
    }

    /// Runs a chunk tile by tile, accumulating `sums`. Not inlined: shared by all chains.
    #[inline(never)]
    pub(super) fn tiles<C: Real>(
        &self,
        chunk: &Chunk,
        part: &mut OnTile<'_, C>,
        (sums, scratch): (&mut [f64], &mut [C]),
    ) {
        let (source, mut prefetcher) = (self.source(chunk.leaf), Prefetch::new(chunk.len >= 2 * TILE));
        let (stores, reads_params) = (self.stores(), self.shape.reads_params_in(self.range.to));
        let from = Source { leaf: source.as_deref(), stores, reads_params };
        for done in (0..chunk.len).step_by(TILE) {
            let len = TILE.min(chunk.len - done);
            let tile = Chunk { start: chunk.start + done, from: chunk.from + done, len, ..*chunk };
            if done > 0 {
                prefetcher.next_tile(chunk.len - done >= 2 * TILE);
            }
            self.tile(&tile, from, part, (&mut *sums, &mut *scratch), &mut prefetcher);
        }
    }

    pub(super) fn source(&self, leaf: usize) -> Option<Cow<'_, TableLeaf>> {
        match self.start? {
            Start::Gradients => self.gradient(leaf).map(Cow::Borrowed),
            Start::Stored => Some(Cow::Owned(TableLeaf::own(self.stored(leaf)))),
        }
    }

    /// Returns a chunk's source and offset in it; `None` unless it and the parameters are contiguous. A pass without
    /// updates gets the parameters, which it does not read.
    pub(super) fn dense(&self, chunk: &Chunk) -> Option<(RawSlice, usize)> {
        let is_dense = |leaf: &&TableLeaf| leaf.strided.is_none();
        let p = Some(&self.params[chunk.leaf]).filter(is_dense)?.data;
        match self.start {
            None => Some((p, chunk.start)),
            Some(Start::Gradients) => Some((self.gradient(chunk.leaf).filter(is_dense)?.data, chunk.from)),
            Some(Start::Stored) => Some((self.stored(chunk.leaf), chunk.from)),
        }
    }

    /// Returns the memory of stored updates: for row-sparse leaves, their gradients.
    fn stored(&self, leaf: usize) -> RawSlice {
        match self.grads.get(leaf) {
            Some(grads) if grads.own => grads.data,
            _ => self.stored[leaf].raw().with_first(self.structure.leaves()[leaf].begins()),
        }
    }

    #[inline]
    fn gradient(&self, leaf: usize) -> Option<&TableLeaf> {
        self.grads.get(leaf).filter(|_| !is_among(self.absent, leaf))
    }

    fn tile<C: Real>(
        &self,
        &Chunk { leaf, start, len, from, .. }: &Chunk,
        Source { leaf: source, stores, reads_params }: Source<'_>,
        part: &mut OnTile<'_, C>,
        (sums, scratch): (&mut [f64], &mut [C]),
        prefetcher: &mut Prefetch,
    ) {
        let spec = &self.structure.leaves()[leaf];
        let (u, scratch) = scratch.split_at_mut(STEP);
        let (other, scratch) = scratch.split_at_mut(STEP);
        let (p, scratch) = scratch.split_at_mut(STEP);
        // SAFETY: the engine owns stored updates, and a pass runs each chunk once, in one task.
        let u = if stores { unsafe { self.stored(leaf).slice_mut(from, len) } } else { &mut u[..len] };
        let table = &self.params[leaf];
        if prefetcher.is_first() {
            source
                .filter(|source| source.strided.is_none())
                .inspect(|source| prefetcher.reads(source.data.addresses(from, len)));
            if table.strided.is_none() && !self.ends && (self.is_last() || reads_params) {
                prefetcher.reads(table.data.addresses(start, len));
            }
        }
        let prefetch_address =
            source.filter(|source| source.strided.is_none()).map_or(0, |source| source.data.end_of(from, len));
        let mut unread = None;
        match source {
            Some(source) if stores && source.own => {}
            Some(source) if source.is_in_memory_order(C::DTYPE) => {
                // SAFETY: gradients are borrowed for the step. While this slice lives, a pass writes only stored
                // updates, which are other memory.
                unread = Some(unsafe { source.data.slice(from, len) });
            }
            // SAFETY: as above.
            Some(source) => unsafe { read_chunk(source, spec, self.simd, from, u) },
            None => u.fill(C::zero()),
        }
        let p = if table.is_in_memory_order(C::DTYPE) {
            // SAFETY: parameters are borrowed for the step. This range of them is written only at the end of this
            // function, or by a loop that first replaces `tile.p`.
            unsafe { table.data.slice(start, len) }
        } else {
            let p = &mut p[..len];
            if reads_params {
                // SAFETY: as above.
                unsafe { read_chunk(table, spec, self.simd, start, p) };
            }
            &*p
        };
        let other = &mut other[..len];
        let (zero, added, swapped, prefetcher, simd) = (false, false, false, Some(prefetcher), self.simd);
        let mut tile = Tile {
            leaf,
            start,
            source: unread,
            u,
            other,
            swapped,
            p,
            sums,
            zero,
            added,
            scratch,
            prefetch_address,
            prefetcher,
            simd,
        };
        part(&mut tile);
        if tile.added {
            return;
        }
        tile.zero |= self.ends;
        let ends = self.is_last() || self.ends;
        // Zero updates leave parameters unmodified.
        let nothing = tile.zero && matches!(self.sink, Sink::Params);
        if stores {
            tile.materialize();
            if tile.swapped {
                tile.other.copy_from_slice(tile.u);
            }
        }
        if !ends || nothing {
            return;
        }
        tile.prefetch_share();
        match self.sink {
            // SAFETY: parameters are borrowed for the step to be written, and a pass runs each chunk once, in one task;
            // the slice `p` is not used after this point.
            Sink::Params => unsafe { add_chunk(table, spec, self.simd, start, tile.input()) },
            // SAFETY: `buffers` are borrowed for the step to be written, and a pass runs each chunk once, in one task.
            Sink::Updates(buffers) => unsafe { store(self.simd, buffers[leaf].raw(), start, tile.input()) },
            Sink::Arrays(arrays) => {
                // SAFETY: as above; `Nested` holds the arrays exclusively.
                arrays.raw(leaf).inspect(|to| unsafe { store(self.simd, *to, start, tile.input()) });
            }
            Sink::Messages(layout, messages) => layout.store(messages, &mut tile),
            Sink::Gradients => {
                tile.materialize();
                // SAFETY: gradients are borrowed for the step to be written, no pass follows, and a pass runs each
                // chunk once, in one task; the slice of `source` is not used after this point.
                self.gradient(leaf).inspect(|to| unsafe { store_chunk(to, spec, self.simd, start, tile.u) });
            }
        }
    }
}
