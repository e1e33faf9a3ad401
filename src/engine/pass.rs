//! One pass of a chain, piece by piece: what is compiled for each chain. How it goes through them is in `walk`.
#![allow(unsafe_code, reason = "pieces of raw leaves on many threads; see `memory`")]

use core::ops::Range;

use super::ahead::DISTANCE;
#[cfg(feature = "half")]
use super::blocks::{ReadBlocks, WriteBlocks};
#[cfg(feature = "half")]
use super::halves::{Format, Source, in_blocks};
use super::in_piece::Next;
#[cfg(feature = "half")]
use super::kernel::BLOCK;
use super::passes::{self, Passes};
use super::pieces::Piece;
use super::sums::NOTHING;
#[cfg(feature = "half")]
use super::tile::TILE;
use super::tile::{Room, Spare};
use super::walk::Walk;
use super::{PieceAt, Place, SlotList, Stage, Tile, fused, on_tile};
use crate::element::{DType, Real};
use crate::memory::RawSlice;
use crate::tree::Structure;

/// One pass of a chain over all leaves.
pub(crate) struct Pass<'a, T: Stage> {
    pub(super) transformation: &'a T,
    pub(super) state: &'a T::State,
    pub(super) run: &'a T::Run,
    pub(super) walk: &'a Walk<'a>,
    /// What is asked for each piece: whether it ends in parameters, and whether it may be one loop.
    adds: bool,
    fuses: bool,
}

/// Does a pass of a stage as a whole chain by loops of its own.
pub(crate) fn by_own_loops<T: Stage>(
    transformation: &T,
    (state, run): (&T::State, &T::Run),
    walk: &Walk<'_>,
    spare: &mut Spare,
) {
    Pass::of(transformation, (state, run), walk).run(spare);
}

/// How a piece is done whose state has another type than its elements; see [`fused::on_piece`].
type ByBlocks<P, T, C> = dyn Fn(&P, &Piece, RawSlice, &SlotList<'_>, &<T as Stage>::Kernel<C>) -> usize;

/// Ways to do a piece.
type AtOnce<P, T, C> = fn(&P, &Piece, &mut [f64], &mut Room<C>, &ByBlocks<P, T, C>) -> bool;
type ByTiles<P, C> = fn(&P, &Piece, &mut [f64], &mut Room<C>);

impl<'a, T: Stage> Pass<'a, T> {
    pub(super) fn of(transformation: &'a T, (state, run): (&'a T::State, &'a T::Run), walk: &'a Walk<'a>) -> Self {
        let adds = walk.writes_params();
        let fuses = adds || drops_in_loops::<T>() && T::SHAPE.drops(walk.span.to) && !walk.ends;
        Pass { transformation, state, run, walk, adds, fuses: T::FUSES && fuses }
    }
}

/// Whether passes that drop updates are loops of the whole chain too. Of what only fuses in some steps the members' own
/// loops do that, which there have to be anyway; but not where what one of them has found would go through memory.
const fn drops_in_loops<T: Stage>() -> bool {
    T::FUSES && (T::FUSES_ALWAYS || T::SHAPE.looks != 0)
}

/// For who does it elsewhere.
impl<T: Stage> Pass<'_, T> {
    pub(crate) fn structure(&self) -> &Structure {
        self.walk.structure
    }

    /// How many barriers come before it.
    pub(crate) fn number(&self) -> usize {
        self.walk.span.to
    }

    /// How many sums the chain has, and which pieces each leaf.
    pub(crate) fn sums(&self) -> (usize, &[Range<usize>]) {
        (self.walk.shape.sums, &self.walk.pieces.of_leaf)
    }

    /// Whether it starts from what an earlier pass has stored, and not from gradients; and whether it stores.
    pub(crate) fn reads_and_writes_stored(&self) -> [bool; 2] {
        [self.walk.shape.starts_from_stored(self.walk.span), self.walk.stores()]
    }

    /// The update that one element of a leaf has after this pass, of a type that records; and whether it is to be added
    /// to the parameter.
    pub(crate) fn record<C: Real>(&self, leaf: usize, u: C, p: C) -> (C, bool) {
        let (mut u, p) = ([u], [p]);
        let mut tile = Tile::in_record(leaf, &mut u, &p, self.walk.isa);
        on_tile(self.transformation, (self.state, self.run), Place::default(), self.walk.span, &mut tile);
        let adds = self.walk.is_last() && !self.walk.ends && !tile.zero;
        tile.settle();
        (u[0], adds)
    }
}

impl<T: Stage> Pass<'_, T> {
    fn run(&self, spare: &mut Spare) {
        self.walk.run(&|number, piece, spare| self.piece(number, piece, spare), spare);
    }

    fn piece(&self, number: usize, piece: &Piece, spare: &mut Spare) {
        // SAFETY: each piece has its own sums, and each is run once in a pass.
        let sums = unsafe { self.walk.sums.slice_mut(number * self.walk.shape.sums, self.walk.shape.sums) };
        match piece.dtype {
            DType::F64 => self.piece_in::<f64>(piece, sums, &mut spare.double, &|_, _, _, _, _| 0),
            _ => {
                let done = if self.fuses { self.halves(piece, sums, &mut spare.single) } else { 0 };
                if done == 0 {
                    self.piece_in::<f32>(piece, sums, &mut spare.single, &Self::by_blocks);
                } else if done < piece.len {
                    let (start, from) = (piece.start + done, piece.from + done);
                    let left = Piece { start, from, len: piece.len - done, ..*piece };
                    self.piece_in::<f32>(&left, sums, &mut spare.single, &Self::by_blocks);
                }
            }
        }
    }

    /// Does as much as it can of the last pass over a piece whose state has 16 bits, a block of each array in
    /// registers: how many elements these are.
    #[cfg(feature = "half")]
    fn by_blocks(&self, piece: &Piece, g: RawSlice, list: &SlotList<'_>, kernel: &T::Kernel<f32>) -> usize {
        let last = if const { T::FUSES } && self.adds { Passes::<T, Format>::LAST_MIXED } else { None };
        let Some(last) = last else { return 0 };
        let (len, p) = (piece.len / BLOCK * BLOCK, self.walk.params[piece.leaf].data);
        let isa = self.walk.isa;
        let [of_leaf, of_source] = [piece.start, piece.from].map(|start| start..start + len);
        // SAFETY: as in `piece_in`.
        unsafe {
            let g = ReadBlocks::of(g, of_source, isa);
            let p = WriteBlocks::of_mut(p, of_leaf.clone(), isa);
            let (Some(g), Some(p), Some(slots)) = (g, p, list.blocks(of_leaf, isa)) else { return 0 };
            last(isa, *kernel, g, p, slots);
        }
        len
    }

    #[cfg(not(feature = "half"))]
    fn by_blocks(&self, _: &Piece, _: RawSlice, _: &SlotList<'_>, _: &T::Kernel<f32>) -> usize {
        0
    }

    /// Does a piece of 16 bits in registers, as far as it can: how many elements these are.
    #[cfg(feature = "half")]
    fn halves(&self, piece: &Piece, sums: &mut [f64], spare: &mut Room<f32>) -> usize {
        let (t, leaf, pass) = (self.transformation, piece.leaf, self.walk.span.to);
        let p = &self.walk.params[leaf];
        let Some(format) = Format::of(p.data.dtype(), self.walk.isa) else { return 0 };
        let drop = if const { drops_in_loops::<T>() } && !self.walk.ends {
            Passes::<T, Format>::DROP_HALVES[pass]
        } else {
            None
        };
        let last = if const { T::FUSES } && self.adds { Passes::<T, Format>::LAST_HALVES } else { None };
        if drop.is_none() && last.is_none() {
            return 0;
        }
        // What has been stored, or kept for it, is calculated with as it is.
        let from_stored = self.walk.span.from > 0;
        let dtype = if from_stored { DType::F32 } else { p.data.dtype() };
        let Some(g) = self.walk.lying_source(leaf, dtype) else { return 0 };
        if p.strided.is_some() || !t.fuses_now(self.state, self.run, leaf) {
            return 0;
        }
        let block = match T::SHAPE.adds_in(pass) {
            true => TILE,
            // The last pass has a way for what is left after the last block.
            false => fused::SlotList::of(t, self.state, leaf).block(if drop.is_some() { BLOCK } else { 1 }),
        };
        let len = piece.len / block * block;
        let beside = &[(g, piece.from), (p.data, piece.start)];
        let by_blocks = &mut |list: &SlotList<'_>, kernel: &T::Kernel<f32>| match drop {
            None => self.by_blocks(&Piece { len, ..*piece }, g, list, kernel),
            Some(_) => 0,
        };
        // SAFETY: as in `piece_in`.
        let done = unsafe {
            let g = match from_stored {
                true => Source::Stored(g.slice(piece.from, len)),
                false => Source::Gradients(format.bits(g, piece.from, len)),
            };
            let isa = self.walk.isa;
            let (held, place, room) = ((self.state, self.run), (piece.start, len, beside), (isa, spare, sums));
            fused::on_piece::<T, f32>(t, held, leaf, place, room, (pass, by_blocks), |kernel, part, slots| {
                let (start, len, g) = (piece.start + part.start, part.len(), g.part(part));
                if let Some(drop) = drop {
                    return drop(isa, kernel, format, g.both().0, format.bits(p.data, start, len), slots);
                }
                let Some(last) = last else { return NOTHING };
                in_blocks(g, format.bits_mut(p.data, start, len), slots, &mut |g, p, slots| {
                    last(isa, kernel, format, g, p, slots)
                })
            })
        };
        if done { len } else { 0 }
    }

    #[cfg(not(feature = "half"))]
    fn halves(&self, _: &Piece, _: &mut [f64], _: &mut Room<f32>) -> usize {
        0
    }

    fn piece_in<C: Real>(
        &self,
        piece: &Piece,
        sums: &mut [f64],
        spare: &mut Room<C>,
        by_blocks: &ByBlocks<Self, T, C>,
    ) {
        // Constants choose the ways, so that loops are compiled only where they can run; see `ways`.
        let at_once: Option<AtOnce<Self, T, C>> = const { if T::FUSES { Some(Self::at_once) } else { None } };
        if self.fuses
            && let Some(at_once) = at_once
            && at_once(self, piece, sums, spare, by_blocks)
        {
            return;
        }
        let by_tiles: ByTiles<Self, C> = const { if T::FUSES_ALWAYS { Self::as_chain } else { Self::as_stage } };
        by_tiles(self, piece, sums, spare);
    }

    /// Does a piece by one loop, if it lies as that needs it and the loop is right for the leaf: says whether it did.
    fn at_once<C: Real>(
        &self,
        piece: &Piece,
        sums: &mut [f64],
        spare: &mut Room<C>,
        by_blocks: &ByBlocks<Self, T, C>,
    ) -> bool {
        let (t, leaf) = (self.transformation, piece.leaf);
        let p = &self.walk.params[leaf];
        let (pass, isa, adds) = (self.walk.span.to, self.walk.isa, self.adds);
        let Some((source, from)) = self.walk.lying(piece, C::DTYPE) else { return false };
        if !t.fuses_now(self.state, self.run, leaf) {
            return false;
        }
        let beside = &[(source, from), (p.data, piece.start)];
        let (held, place, room) = ((self.state, self.run), (piece.start, piece.len, beside), (isa, spare, sums));
        let dropping =
            const { if drops_in_loops::<T>() { Some(passes::pass::<T, C> as passes::OwnFn<T, C>) } else { None } };
        // SAFETY: leaves are lent for the step, the state is held exclusively, and each piece is run once in a pass;
        // gradients, parameters and stored updates are different memory.
        unsafe {
            let g = source.slice::<C>(from, piece.len);
            let by_blocks =
                &mut |list: &SlotList<'_>, kernel: &T::Kernel<C>| by_blocks(self, piece, source, list, kernel);
            fused::on_piece::<T, C>(t, held, leaf, place, room, (pass, by_blocks), |kernel, part, slots| {
                let (start, len, g) = (piece.start + part.start, part.len(), &g[part]);
                if adds {
                    let g = (g, g.as_ptr().addr() + DISTANCE);
                    return Passes::<T, C>::LAST(isa, kernel, g, p.data.slice_mut(start, len), slots);
                }
                let Some(dropping) = dropping else { return NOTHING };
                let p = p.data.slice(start, len);
                dropping(isa, pass, kernel, (g, &mut [], p), slots)
            })
        }
    }

    /// Does a piece by tiles, for each of which it is one loop.
    fn as_chain<C: Real>(&self, piece: &Piece, sums: &mut [f64], spare: &mut Room<C>) {
        let (held, pass) = ((self.state, self.run), self.walk.span.to);
        let chain = &mut |tile: &mut Tile<'_, C>| fused::chain_tile(self.transformation, held, pass, tile);
        self.walk.tiles(piece, chain, (sums, spare.all()));
    }

    /// Does a piece by what its members do to tiles.
    fn as_stage<C: Real>(&self, piece: &Piece, sums: &mut [f64], spare: &mut Room<C>) {
        let (place, span) = (Place::default(), self.walk.span);
        let params = &self.walk.params[piece.leaf];
        let next = match () {
            () if self.walk.shape.drops(span.to) => Next::Dropped,
            () if self.adds && params.lies(C::DTYPE) => Next::Added(params.data),
            () => Next::Read,
        };
        let at = PieceAt { place, span, leaf: piece.leaf, start: piece.start, len: piece.len, next };
        self.transformation.in_piece(self.state, self.run, at, &mut |part| {
            self.walk.tiles(piece, part, (&mut *sums, spare.all()));
        });
    }
}
