//! A pass over the leaves, compiled once for all chains.
#![allow(unsafe_code, reason = "pieces of raw leaves on many threads; see `memory`")]

use core::ops::Range;
use std::borrow::Cow;

use super::ahead::Ahead;
use super::convert::store;
use super::isa::Isa;
use super::leaf::{TableLeaf, is_among, read_stretch};
use super::piece_at::OnTile;
#[cfg(feature = "rayon")]
use super::pieces::WORTH;
use super::pieces::{Piece, Pieces};
use super::tile::{STEP, Spare, TILE};
use super::written::{Sink, add_stretch, store_stretch};
use super::{Shape, Span, Tile};
use crate::element::Real;
use crate::memory::{Buffer, RawSlice};
#[cfg(feature = "rayon")]
use crate::numeric::split::{shared, threads, worth_sharing};
use crate::tree::Structure;

/// The leaves, range and output of a pass.
pub struct Walk<'a> {
    pub(super) structure: &'a Structure,
    pub(super) pieces: &'a Pieces,
    pub(super) params: &'a [TableLeaf],
    pub(super) grads: &'a [TableLeaf],
    pub(super) absent: &'a [bool],
    pub(super) stored: &'a [Buffer],
    pub(super) sums: RawSlice,
    pub(super) span: Span,
    /// The input of the pass; `None` if it needs no updates or they are stored elsewhere.
    pub(super) start: Option<Start>,
    /// True if the pass runs from the last chunk to the first: the previous pass left the last chunks in the cache.
    /// Results do not depend on the order, because sums are kept by chunk.
    pub(super) backwards: bool,
    pub(super) shape: Shape,
    /// True if all updates are zero after this pass, so that no further pass is needed.
    pub(super) ends: bool,
    pub(super) sink: Sink<'a>,
    /// The leaves of the pass; empty for all.
    pub(super) only: &'a [usize],
    pub(super) isa: Isa,
}

/// The input of a chunk's tiles.
#[derive(Clone, Copy)]
struct Source<'a> {
    /// The gradients, or the updates that an earlier pass stored.
    leaf: Option<&'a TableLeaf>,
    /// True if the pass stores the updates; true if it reads parameters.
    stores: bool,
    reads_params: bool,
}

/// Chunks that a backward pass runs in forward order before it steps back. Hardware prefetchers restart where the order
/// breaks: stepping back by single chunks makes a pass half as slow again on AMD Zen 5. The caches hold the data of 16
/// chunks.
const STRETCH: usize = 16;

#[derive(Clone, Copy)]
pub(super) enum Start {
    Gradients,
    /// Updates that an earlier pass stored.
    Stored,
}

impl Start {
    pub(super) fn of(shape: Shape, span: Span) -> Option<Start> {
        match span.from {
            _ if !shape.needs_updates(span.to) => None,
            0 => Some(Start::Gradients),
            _ => shape.starts_from_stored(span).then_some(Start::Stored),
        }
    }
}

/// Runs one chunk. The index of the chunk selects its sums.
pub(super) type EachPiece<'a> = dyn Fn(usize, &Piece, &mut Spare) + Sync + 'a;

impl Walk<'_> {
    pub(super) fn run(&self, each: &EachPiece<'_>, spare: &mut Spare) {
        let all = 0..self.pieces.all.len();
        #[cfg(feature = "rayon")]
        if worth_sharing(self.pieces.elements(), WORTH) {
            let tasks = self.pieces.tasks(self.pieces.task(threads()));
            return shared(0..tasks.count, self.backwards, &|task| self.few(each, tasks.pieces(task)));
        }
        self.some(each, all, spare);
    }

    fn some(&self, each: &EachPiece<'_>, pieces: Range<usize>, spare: &mut Spare) {
        let mut one = |i: usize| {
            let piece = &self.pieces.all[i];
            if self.only.is_empty() || self.only.contains(&piece.leaf) {
                each(i, piece, spare);
            }
        };
        if !self.backwards {
            return pieces.for_each(one);
        }
        let mut end = pieces.end;
        while end > pieces.start {
            let start = end.saturating_sub(STRETCH).max(pieces.start);
            (start..end).for_each(&mut one);
            end = start;
        }
    }

    /// Not inlined: the spare room would enlarge each frame of the recursive split. A dozen such frames, and the tasks
    /// that a waiting thread runs on top of them, overflow a stack of 2 MiB.
    #[cfg(feature = "rayon")]
    #[inline(never)]
    fn few(&self, each: &EachPiece<'_>, pieces: Range<usize>) {
        self.some(each, pieces, &mut Spare::default());
    }

    /// Returns true if a chain of another shape would run this pass identically: with the same barriers, reductions,
    /// and stored updates before and after it.
    pub(super) fn is_of(&self, shape: Shape) -> bool {
        let (own, to) = (self.shape, self.span.to);
        let sums = |shape: Shape| (shape.barriers, shape.sums, shape.adds, shape.counts);
        let stores = |shape: Shape| (shape.stores(to), shape.drops(to), shape.starts_from_stored(self.span));
        sums(own) == sums(shape) && shape.span(to) == self.span && stores(own) == stores(shape)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.shape.is_idle(self.span.to) && !self.ends
    }

    pub(super) fn stores(&self) -> bool {
        self.shape.stores(self.span.to) && !self.ends
    }

    pub(super) fn writes_params(&self) -> bool {
        self.is_last() && !self.ends && matches!(self.sink, Sink::Params)
    }

    pub(super) fn is_last(&self) -> bool {
        self.span.to == self.shape.barriers
    }

    /// Runs a chunk tile by tile. `sums` accumulates over the tiles.
    pub(super) fn tiles<C: Real>(
        &self,
        piece: &Piece,
        part: &mut OnTile<'_, C>,
        (sums, spare): (&mut [f64], &mut [C]),
    ) {
        let (source, mut ahead) = (self.source(piece.leaf), Ahead::new(piece.len >= 2 * TILE));
        let (stores, reads_params) = (self.stores(), self.shape.reads_params_in(self.span.to));
        let from = Source { leaf: source.as_deref(), stores, reads_params };
        for done in (0..piece.len).step_by(TILE) {
            let len = TILE.min(piece.len - done);
            let tile = Piece { start: piece.start + done, from: piece.from + done, len, ..*piece };
            if done > 0 {
                ahead.go_on(piece.len - done >= 2 * TILE);
            }
            self.tile(&tile, from, part, (&mut *sums, &mut *spare), &mut ahead);
        }
    }

    /// Returns the leaf that this pass reads: gradients, or updates that an earlier pass stored.
    pub(super) fn source(&self, leaf: usize) -> Option<Cow<'_, TableLeaf>> {
        match self.start? {
            Start::Gradients => self.gradient(leaf).map(Cow::Borrowed),
            Start::Stored => Some(Cow::Owned(TableLeaf::own(self.stored(leaf)))),
        }
    }

    /// Returns the array that a pass over a chunk reads, with the offset of the chunk in it. `None` unless it and the
    /// parameters are contiguous. For a pass that needs no updates it is the parameters, which the pass does not read.
    pub(super) fn dense(&self, piece: &Piece) -> Option<(RawSlice, usize)> {
        let is_dense = |leaf: &&TableLeaf| leaf.strided.is_none();
        let p = Some(&self.params[piece.leaf]).filter(is_dense)?.data;
        match self.start {
            None => Some((p, piece.start)),
            Some(Start::Gradients) => Some((self.gradient(piece.leaf).filter(is_dense)?.data, piece.from)),
            Some(Start::Stored) => Some((self.stored(piece.leaf), piece.from)),
        }
    }

    /// Returns the memory of updates stored between passes: for row-sparse leaves, that of their gradients.
    fn stored(&self, leaf: usize) -> RawSlice {
        match self.grads.get(leaf) {
            Some(grads) if grads.own => grads.data,
            _ => self.stored[leaf].raw().placed_at(self.structure.leaves()[leaf].begins()),
        }
    }

    #[inline]
    fn gradient(&self, leaf: usize) -> Option<&TableLeaf> {
        self.grads.get(leaf).filter(|_| !is_among(self.absent, leaf))
    }

    fn tile<C: Real>(
        &self,
        &Piece { leaf, start, len, from, .. }: &Piece,
        Source { leaf: source, stores, reads_params }: Source<'_>,
        part: &mut OnTile<'_, C>,
        (sums, spare): (&mut [f64], &mut [C]),
        ahead: &mut Ahead,
    ) {
        let spec = &self.structure.leaves()[leaf];
        let (u, spare) = spare.split_at_mut(STEP);
        let (other, spare) = spare.split_at_mut(STEP);
        let (p, spare) = spare.split_at_mut(STEP);
        // SAFETY: the engine owns stored updates, and a pass runs each chunk once, in one task.
        let u = if stores { unsafe { self.stored(leaf).slice_mut(from, len) } } else { &mut u[..len] };
        let table = &self.params[leaf];
        if ahead.is_first() {
            source
                .filter(|source| source.strided.is_none())
                .inspect(|source| ahead.reads(source.data.addresses(from, len)));
            if table.strided.is_none() && (self.is_last() || reads_params) {
                ahead.reads(table.data.addresses(start, len));
            }
        }
        let coming = source.filter(|source| source.strided.is_none()).map_or(0, |source| source.data.end_of(from, len));
        let mut unread = None;
        match source {
            // Stored updates are read and stored in place.
            Some(source) if stores && source.own => {}
            Some(source) if source.lies(C::DTYPE) => {
                // SAFETY: gradients are borrowed for the step. While this slice lives, a pass writes only stored
                // updates, which are other memory.
                unread = Some(unsafe { source.data.slice(from, len) });
            }
            // SAFETY: as above.
            Some(source) => unsafe { read_stretch(source, spec, self.isa, from, u) },
            None => u.fill(C::zero()),
        }
        let p = if table.lies(C::DTYPE) {
            // SAFETY: parameters are borrowed for the step. This range of them is written only at the end of this
            // function, or by a loop that first replaces `tile.p`.
            unsafe { table.data.slice(start, len) }
        } else {
            let p = &mut p[..len];
            if reads_params {
                // SAFETY: as above.
                unsafe { read_stretch(table, spec, self.isa, start, p) };
            }
            &*p
        };
        let other = &mut other[..len];
        let (zero, added, swapped, ahead, isa) = (false, false, false, Some(ahead), self.isa);
        let mut tile =
            Tile { leaf, start, source: unread, u, other, swapped, p, sums, zero, added, spare, coming, ahead, isa };
        part(&mut tile);
        if tile.added {
            return;
        }
        tile.zero |= self.ends;
        let ends = self.is_last() || self.ends;
        // Zero updates leave parameters unmodified.
        let nothing = tile.zero && matches!(self.sink, Sink::Params);
        if stores {
            tile.settle();
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
            Sink::Params => unsafe { add_stretch(table, spec, self.isa, start, tile.input()) },
            // SAFETY: `buffers` are borrowed for the step to be written, and a pass runs each chunk once, in one task.
            Sink::Updates(buffers) => unsafe { store(self.isa, buffers[leaf].raw(), start, tile.input()) },
            Sink::Arrays(arrays) => {
                // SAFETY: as above; `Nested` holds the arrays exclusively.
                arrays.raw(leaf).inspect(|to| unsafe { store(self.isa, *to, start, tile.input()) });
            }
            Sink::Messages(layout, messages) => layout.put(messages, &mut tile),
            Sink::Gradients => {
                tile.settle();
                // SAFETY: gradients are borrowed for the step to be written, no pass follows, and a pass runs each
                // chunk once, in one task; the slice of `source` is not used after this point.
                self.gradient(leaf).inspect(|to| unsafe { store_stretch(to, spec, self.isa, start, tile.u) });
            }
        }
    }
}
