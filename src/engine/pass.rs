//! One pass over all leaves, piece by piece.
#![allow(unsafe_code, reason = "pieces of raw leaves on many threads; see `memory`")]

use core::ops::Range;

use super::ahead::Ahead;
use super::context::is_among;
use super::convert::store;
use super::in_piece::by_tile;
use super::isa::Isa;
use super::kernel;
use super::pieces::{Piece, Pieces};
use super::sums::Added;
use super::table::TableLeaf;
use super::tile::{Spare, TILE};
use super::whole::read_stretch;
use super::written::{Sink, add_direct, add_stretch, store_stretch};
use super::{InPiece, PieceAt, Place, Shape, Span, Stage, Then, Tile, fused};
#[cfg(feature = "half")]
use super::{halves::Format, kernel::BLOCK};
use crate::element::{DType, Real};
use crate::memory::{Buffer, RawSlice};
use crate::tree::Structure;

/// Elements of a tile where there are several loops and everything lies as it is calculated with.
const SHORT: usize = 512;

/// One pass over all leaves.
pub(crate) struct Pass<'a, T: Stage> {
    pub(super) transformation: &'a T,
    pub(super) state: &'a T::State,
    pub(super) run: &'a T::Run,
    pub(super) structure: &'a Structure,
    pub(super) pieces: &'a Pieces,
    pub(super) params: &'a [TableLeaf],
    pub(super) grads: &'a [TableLeaf],
    pub(super) absent: &'a [bool],
    pub(super) stored: &'a [Buffer],
    pub(super) sums: RawSlice,
    pub(super) span: Span,
    /// Whether it begins with the last piece: what the pass before went through last is still in the cache. No bit
    /// depends on the order, since sums are kept by piece.
    pub(super) backwards: bool,
    pub(super) shape: Shape,
    /// All updates are zero after this pass, and no further pass is needed.
    pub(super) ends: bool,
    pub(super) sink: Sink<'a>,
    pub(super) isa: Isa,
}

/// A chain that is one loop.
struct Chain<'a, T: Stage> {
    transformation: &'a T,
    state: &'a T::State,
    run: &'a T::Run,
    pass: usize,
}

impl<T: Stage, C: Real> InPiece<C> for Chain<'_, T> {
    fn tile(&mut self, tile: &mut Tile<'_, C>) {
        fused::chain_tile(self.transformation, (self.state, self.run), self.pass, tile);
    }
}

/// For who does it elsewhere.
impl<T: Stage> Pass<'_, T> {
    pub(crate) fn structure(&self) -> &Structure {
        self.structure
    }

    /// How many barriers come before it.
    pub(crate) fn number(&self) -> usize {
        self.span.to
    }

    /// How many sums the chain has, and which pieces each leaf.
    pub(crate) fn sums(&self) -> (usize, &[Range<usize>]) {
        (self.shape.sums, &self.pieces.of_leaf)
    }

    /// Whether it starts from what an earlier pass has stored, and not from gradients; and whether it stores.
    pub(crate) fn reads_and_writes_stored(&self) -> [bool; 2] {
        [self.shape.starts_from_stored(self.span), self.stores()]
    }

    fn stores(&self) -> bool {
        self.shape.stores(self.span.to) && !self.ends
    }

    /// The update that one element of a leaf has after this pass, of a type that records; and whether it is to be added
    /// to the parameter.
    pub(crate) fn record<C: Real>(&self, leaf: usize, u: C, p: C) -> (C, bool) {
        let (mut u, p) = ([u], [p]);
        let mut tile = Tile::in_record(leaf, &mut u, &p, self.isa);
        self.transformation.tile(self.state, self.run, Place::default(), self.span, &mut tile);
        let adds = self.is_last() && !self.ends && !tile.zero;
        tile.settle();
        (u[0], adds)
    }
}

impl<T: Stage> Pass<'_, T> {
    pub(super) fn run(&self, spare: &mut Spare) {
        let all = 0..self.pieces.all.len();
        #[cfg(feature = "rayon")]
        if rayon::current_num_threads() > 1 && self.pieces.middle(&all).is_some() {
            return self.split(all);
        }
        self.some(all, spare);
    }

    fn some(&self, pieces: Range<usize>, spare: &mut Spare) {
        let one = |i: usize| self.piece(i, &self.pieces.all[i], spare);
        if self.backwards { pieces.rev().for_each(one) } else { pieces.for_each(one) }
    }

    /// Halves the pieces until there are few elements, so that idle threads can take the other half.
    #[cfg(feature = "rayon")]
    fn split(&self, pieces: Range<usize>) {
        let Some(middle) = self.pieces.middle(&pieces) else { return self.few(pieces) };
        let (left, right) = (|| self.split(pieces.start..middle), || self.split(middle..pieces.end));
        if self.backwards {
            rayon::join(right, left)
        } else {
            rayon::join(left, right)
        };
    }

    /// A function of its own, since the spare room would be part of every frame of `split` otherwise: a dozen of them,
    /// and a thread that waits does what it finds on top of these, are more than the two megabytes that threads have.
    #[cfg(feature = "rayon")]
    #[inline(never)]
    fn few(&self, pieces: Range<usize>) {
        self.some(pieces, &mut Spare::default());
    }

    fn piece(&self, number: usize, piece: &Piece, spare: &mut Spare) {
        // SAFETY: each piece has its own sums, and each is run once in a pass.
        let sums = unsafe { self.sums.slice_mut(number * self.shape.sums, self.shape.sums) };
        match self.structure.leaves()[piece.leaf].dtype().compute() {
            DType::F64 => self.piece_in::<f64>(piece, sums, &mut spare.double),
            _ => {
                let done = self.halves(piece, sums, &mut spare.single);
                let (start, from) = (piece.start + done, piece.from + done);
                self.piece_in::<f32>(&Piece { start, from, len: piece.len - done, ..*piece }, sums, &mut spare.single);
            }
        }
    }

    /// Does the blocks of a piece of 16 bits, where it can: how many elements these are.
    #[cfg(feature = "half")]
    fn halves(&self, piece: &Piece, sums: &mut [f64], spare: &mut [f32]) -> usize {
        if const { !T::FUSES } || !self.writes_params() {
            return 0;
        }
        let (t, leaf) = (self.transformation, piece.leaf);
        let p = &self.params[leaf];
        let Some(format) = Format::of(p.data.dtype()) else { return 0 };
        let fits = |l: &TableLeaf| l.strides.is_none() && l.data.dtype() == p.data.dtype();
        let Some(g) = self.source(leaf).filter(fits) else { return 0 };
        if p.strides.is_some() || !t.fuses_now(self.state, self.run, leaf) {
            return 0;
        }
        let block = match const { T::SHAPE.adds_in(T::SHAPE.barriers) } {
            true => TILE,
            false => fused::SlotList::of(t, self.state, leaf).block(BLOCK),
        };
        let len = piece.len / block * block;
        let beside = [(g.data, piece.from), (p.data, piece.start)];
        // SAFETY: as in `piece_in`.
        let done = unsafe {
            let (g, p) = (format.bits(g.data, piece.from, len), format.bits_mut(p.data, piece.start, len));
            let (held, place, room) = ((self.state, self.run), (piece.start, len, beside), (self.isa, spare, sums));
            fused::on_piece::<T, f32>(t, held, leaf, place, room, self.span.to, |kernel, part, slots, _| {
                kernel::apply_halves::<T>(self.isa, kernel, format, &g[part.clone()], &mut p[part], slots)
            })
        };
        if done { len } else { 0 }
    }

    #[cfg(not(feature = "half"))]
    fn halves(&self, _: &Piece, _: &mut [f64], _: &mut [f32]) -> usize {
        0
    }

    /// Whether this pass ends with parameters.
    fn writes_params(&self) -> bool {
        self.is_last() && !self.ends && matches!(self.sink, Sink::Params)
    }

    fn is_last(&self) -> bool {
        self.span.to == self.shape.barriers
    }

    fn piece_in<C: Real>(&self, piece: &Piece, sums: &mut [f64], spare: &mut [C]) {
        let (t, leaf) = (self.transformation, piece.leaf);
        let p = &self.params[leaf];
        let direct = |l: &TableLeaf| l.strides.is_none() && l.data.dtype() == C::DTYPE;
        let source = self.source(leaf);
        let (pass, isa, adds) = (self.span.to, self.isa, self.writes_params());
        let fuses = adds || T::FUSES_ALWAYS && T::SHAPE.drops(pass) && !self.ends;
        let lies = direct(p) && source.as_ref().is_some_and(direct);
        // The constants stand alone, here and below, so that a loop is compiled only where it can run.
        if const { T::FUSES } && fuses && lies && t.fuses_now(self.state, self.run, leaf) {
            let source = source.as_ref().map_or(RawSlice::empty(C::DTYPE), |s| s.data);
            let beside = [(source, piece.from), (p.data, piece.start)];
            let (held, place, room) =
                ((self.state, self.run), (piece.start, piece.len, beside), (isa, &mut *spare, &mut *sums));
            // SAFETY: leaves are lent for the step, the state is held exclusively, and each piece is run once in a
            // pass; gradients, parameters and stored updates are different memory.
            let done = unsafe {
                let g = source.slice(piece.from, piece.len);
                fused::on_piece::<T, C>(t, held, leaf, place, room, pass, |kernel, part, mut slots, ahead| {
                    let (start, len, g) = (piece.start + part.start, part.len(), &g[part]);
                    if adds {
                        return kernel::apply::<T, C>(isa, kernel, g, p.data.slice_mut(start, len), slots);
                    }
                    if const { T::FUSES_ALWAYS } {
                        let p = p.data.slice(start, len);
                        return kernel::pass::<T, C, true>((isa, pass), &kernel, g, &mut [], p, &mut slots, ahead);
                    }
                    Added::default()
                })
            };
            if done {
                return;
            }
        }
        // The constant stands alone, so that of a chain that is one loop only the passes that it has are compiled.
        if const { T::FUSES_ALWAYS } {
            let chain = &mut Chain { transformation: t, state: self.state, run: self.run, pass };
            return self.tiles(piece, source.as_ref(), chain, (sums, spare), false);
        }
        let (place, span) = (Place::default(), self.span);
        let at = PieceAt { place, span, leaf, start: piece.start, len: piece.len };
        let ends = self.is_last() || self.ends;
        let short = lies && !self.stores() && (adds || !ends);
        let then: &mut Then<'_, C> = &mut |part| match &source {
            Some(source) if short && part.splits() => {
                self.short_tiles(piece, source.data, part, (&mut *sums, &mut *spare), adds);
            }
            source => self.tiles(piece, source.as_ref(), part, (&mut *sums, &mut *spare), true),
        };
        // What is one tile has nothing to look up for others.
        match piece.len > TILE {
            true => t.in_piece(self.state, self.run, at, then),
            false => by_tile(t, (self.state, self.run), at, then),
        }
    }

    /// Goes through a piece of which everything lies as it is calculated with, by tiles so short that what one loop
    /// waits for is on its way while the others calculate.
    fn short_tiles<C: Real>(
        &self,
        piece: &Piece,
        source: RawSlice,
        part: &mut dyn InPiece<C>,
        (sums, spare): (&mut [f64], &mut [C]),
        adds: bool,
    ) {
        let (params, leaf, isa) = (self.params[piece.leaf].data, piece.leaf, self.isa);
        let (u, spare) = spare.split_at_mut(TILE);
        let (other, spare) = spare.split_at_mut(TILE);
        for done in (0..piece.len).step_by(SHORT) {
            let (start, from, len) = (piece.start + done, piece.from + done, SHORT.min(piece.len - done));
            // SAFETY: gradients and parameters are lent for the step, and each piece is run once in a pass; what is
            // read of the parameters is not used any more when they are written.
            let (g, p) = unsafe { (source.slice::<C>(from, len), params.slice::<C>(start, len)) };
            let (u, other, sums, spare) = (&mut u[..len], &mut other[..len], &mut *sums, &mut *spare);
            let (swapped, zero, ahead) = (false, false, None);
            let mut tile = Tile { leaf, start, source: Some(g), u, other, swapped, p, sums, zero, spare, ahead, isa };
            part.tile(&mut tile);
            // Parameters whose updates are zero are not touched.
            if adds && !tile.zero {
                // SAFETY: as above.
                unsafe { add_direct(params, isa, start, tile.input()) };
            }
        }
    }

    /// Goes through a piece tile by tile. One loop alone has no other that could ask for what it waits for.
    fn tiles<C: Real>(
        &self,
        piece: &Piece,
        source: Option<&TableLeaf>,
        part: &mut dyn InPiece<C>,
        (sums, spare): (&mut [f64], &mut [C]),
        asks: bool,
    ) {
        let mut ahead = Ahead::new();
        for done in (0..piece.len).step_by(TILE) {
            let len = TILE.min(piece.len - done);
            let tile = Piece { leaf: piece.leaf, start: piece.start + done, from: piece.from + done, len };
            ahead.begin(asks && piece.len - done >= 2 * TILE);
            self.tile(&tile, source, part, (&mut *sums, &mut *spare), &mut ahead);
        }
    }

    /// Where this pass starts from: the gradients, or what an earlier pass stored; if that has been kept elsewhere,
    /// nowhere.
    fn source(&self, leaf: usize) -> Option<TableLeaf> {
        match self.span.from {
            0 => self.gradient(leaf).cloned(),
            _ => self.shape.starts_from_stored(self.span).then(|| TableLeaf::own(self.stored(leaf))),
        }
    }

    /// Where updates are stored between passes: of rows in the place of their gradients.
    fn stored(&self, leaf: usize) -> RawSlice {
        match self.grads.get(leaf) {
            Some(grads) if grads.own => grads.data,
            _ => self.stored[leaf].raw().placed_at(self.structure.leaves()[leaf].begins()),
        }
    }

    fn gradient(&self, leaf: usize) -> Option<&TableLeaf> {
        self.grads.get(leaf).filter(|_| !is_among(self.absent, leaf))
    }

    fn tile<C: Real>(
        &self,
        &Piece { leaf, start, len, from }: &Piece,
        source: Option<&TableLeaf>,
        part: &mut dyn InPiece<C>,
        (sums, spare): (&mut [f64], &mut [C]),
        ahead: &mut Ahead,
    ) {
        let spec = &self.structure.leaves()[leaf];
        let (u, spare) = spare.split_at_mut(TILE);
        let (other, spare) = spare.split_at_mut(TILE);
        let (p, spare) = spare.split_at_mut(TILE);
        let stores = self.stores();
        // SAFETY: stored updates belong to the engine, and each piece is run once in a pass.
        let u = if stores { unsafe { self.stored(leaf).slice_mut(from, len) } } else { &mut u[..len] };
        let mut unread = None;
        match source {
            // What was stored is already where it is going to be stored again.
            Some(source) if stores && source.own => {}
            Some(source) if source.strides.is_none() && source.data.dtype() == C::DTYPE => {
                // SAFETY: gradients are lent for the step; while this is borrowed only stored updates, another stretch
                // of memory, are written.
                unread = Some(unsafe { source.data.slice(from, len) });
            }
            // SAFETY: as above.
            Some(source) => unsafe { read_stretch(source, spec, self.isa, from, u) },
            None => u.fill(C::zero()),
        }
        let table = &self.params[leaf];
        let p = if table.strides.is_none() && table.data.dtype() == C::DTYPE {
            // SAFETY: parameters are lent for the step, and this stretch is written only at the end of this function.
            unsafe { table.data.slice(start, len) }
        } else {
            let p = &mut p[..len];
            if self.shape.reads_params_in(self.span.to) {
                // SAFETY: as above.
                unsafe { read_stretch(table, spec, self.isa, start, p) };
            }
            &*p
        };
        source
            .filter(|source| source.strides.is_none())
            .inspect(|source| ahead.reads(source.data.addresses(from, len)));
        if table.strides.is_none() && (self.is_last() || self.shape.reads_params_in(self.span.to)) {
            ahead.reads(table.data.addresses(start, len));
        }
        let other = &mut other[..len];
        let (zero, swapped, ahead, isa) = (false, false, Some(ahead), self.isa);
        let mut tile = Tile { leaf, start, source: unread, u, other, swapped, p, sums, zero, spare, ahead, isa };
        part.tile(&mut tile);
        tile.zero |= self.ends;
        let ends = self.is_last() || self.ends;
        // Parameters whose updates are zero are not touched.
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
        match self.sink {
            // SAFETY: parameters are lent for the step to be written, and each piece is run once in a pass; what `p`
            // borrowed is not used any more.
            Sink::Params => unsafe { add_stretch(table, spec, self.isa, start, tile.input()) },
            // SAFETY: the updates are lent for the step to be written, and each piece is run once in a pass.
            Sink::Updates(buffers) => unsafe { store(self.isa, buffers[leaf].raw(), start, tile.input()) },
            Sink::Arrays(arrays) => {
                // SAFETY: as above; `Nested` holds the arrays exclusively.
                arrays.raw(leaf).inspect(|to| unsafe { store(self.isa, *to, start, tile.input()) });
            }
            Sink::Messages(layout, messages) => layout.put(messages, &mut tile),
            Sink::Gradients => {
                tile.settle();
                // SAFETY: gradients are lent for the step to be written, no pass comes after this one, and each piece
                // is run once in a pass; what `source` borrowed is not used any more.
                self.gradient(leaf).inspect(|to| unsafe { store_stretch(to, spec, self.isa, start, tile.u) });
            }
        }
    }
}
