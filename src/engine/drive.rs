//! One step: the passes over all leaves, and what happens between them.
#![allow(unsafe_code, reason = "pieces of raw leaves on many threads; see `memory`")]

use core::ops::Range;
use core::ptr::NonNull;

use super::ahead::Ahead;
use super::convert::store;
use super::isa::{Isa, current_isa};
use super::kernel;
use super::pieces::{Piece, Pieces};
use super::ranks::Ranks;
use super::remote::RemoteTree;
use super::rows::Rows;
use super::stage::is_among;
use super::sums::Added;
use super::table::{Table, TableLeaf};
use super::tile::{Spare, TILE};
use super::whole::read_stretch;
use super::written::{Sink, add_stretch, store_stretch};
use super::{Ask, Outcome, Place, Shape, Span, Stage, StepContext, Sums, Tile, WholeTree, fused};
#[cfg(feature = "half")]
use super::{halves::Format, kernel::BLOCK};
use crate::element::{DType, Real};
use crate::error::Error;
use crate::memory::{Buffer, RawSlice};
use crate::tree::{LeafSpec, Structure};

/// Whoever goes through the leaves in place of the engine, on another machine.
pub(crate) trait Remote<T: Stage>: RemoteTree {
    /// Does a pass, and says what it added to each sum of each piece; none if it failed.
    fn pass(&mut self, pass: &Pass<'_, T>) -> Option<Vec<f64>>;
    /// Does what was written down of whole leaves at a barrier; none if it failed.
    fn leaves(&mut self, barrier: usize) -> Option<()>;
    /// Why a pass failed, if one did.
    fn error(&mut self) -> Option<Error>;
}

/// What a state keeps between steps besides what it remembers: cuts, tables, sums, and where a chain needs it a place
/// to store updates between passes.
pub(crate) struct Work {
    pieces: Pieces,
    pub(crate) params: Table,
    pub(crate) grads: Table,
    pub(crate) rows: Rows,
    /// Which gradients are not there; of none if all are.
    pub(crate) absent: Vec<bool>,
    pub(crate) path: String,
    sums: Vec<f64>,
    stored: Vec<Buffer>,
    copies: Vec<Option<Buffer>>,
    there: Table,
    active: Vec<bool>,
    spare: Box<Spare>,
    shape: Shape,
    /// The other machines that have sums of the same step, if there are any.
    pub(crate) ranks: Option<Box<Ranks>>,
}

impl Work {
    pub(crate) fn new(structure: &Structure, shape: Shape) -> Work {
        Work::new_for(structure, &vec![true; structure.len()], shape)
    }

    /// For passes over the active leaves only.
    pub(crate) fn new_for(structure: &Structure, active: &[bool], shape: Shape) -> Work {
        let pieces = Pieces::new(structure, active);
        let stored = |(leaf, on): (&LeafSpec, &bool)| {
            Buffer::zeros(leaf.dtype().compute(), if *on { leaf.here().len() } else { 0 })
        };
        Work {
            params: Table::with_capacity(structure.len()),
            grads: Table::with_capacity(structure.len()),
            rows: Rows::default(),
            absent: Vec::with_capacity(structure.len()),
            path: String::new(),
            stored: if shape.stores_any() {
                structure.leaves().iter().zip(active).map(stored).collect()
            } else {
                Vec::new()
            },
            copies: Vec::new(),
            there: Table::new(),
            active: active.into(),
            spare: Box::default(),
            sums: vec![0.0; pieces.all.len() * shape.sums],
            pieces,
            shape,
            ranks: None,
        }
    }

    /// What it is for.
    pub(crate) fn shape(&self) -> Shape {
        self.shape
    }

    /// The same, for a copy of the state.
    pub(crate) fn fresh(&self, structure: &Structure) -> Work {
        Work::new(structure, self.shape)
    }

    /// The same, for passes over the active leaves only.
    pub(crate) fn fresh_for(&self, structure: &Structure, active: &[bool]) -> Work {
        Work { ranks: self.ranks.clone(), ..Work::new_for(structure, active, self.shape) }
    }

    /// Does a step on the leaves in the tables. Without gradients in the table, all gradients are zero.
    pub(crate) fn step<T: Stage>(
        &mut self,
        transformation: &T,
        state: &mut T::State,
        at: &StepContext<'_>,
        mut objective: Option<&mut (dyn Ask + '_)>,
        sink: Sink<'_>,
        mut elsewhere: Option<&mut (dyn Remote<T> + '_)>,
    ) -> Outcome {
        let shape = self.shape;
        let at = &StepContext { params: &self.params, absent: &self.absent, point: None, ..*at };
        self.rows.cut(at.structure, &self.active);
        let pieces = if self.rows.leaves.is_empty() { &self.pieces } else { &self.rows.pieces };
        if let Sink::Updates(buffers) = sink {
            for updates in self.rows.leaves.iter().map(|leaf| &buffers[*leaf]) {
                // SAFETY: the updates are lent for the step to be written, and no pass is running.
                unsafe { updates.raw().bytes_mut(0, updates.len()) }.fill(0);
            }
        }
        self.sums.clear();
        self.sums.resize(pieces.all.len() * shape.sums, 0.0);
        if let Some(ranks) = &mut self.ranks {
            ranks.clear(shape.sums);
        }
        let (structure, resting) = (at.structure, at.absent);
        let none = Sums { pieces, values: &[], width: shape.sums, first: 0, structure, resting };
        let mut run = transformation.begin(state, at);
        for number in 0..=shape.barriers {
            let ends = transformation.ends_at(state, &run);
            let pass = Pass {
                transformation,
                state: &*state,
                run: &run,
                structure: at.structure,
                pieces,
                params: &self.params,
                grads: if at.gradients { &self.grads } else { &[] },
                absent: at.absent,
                stored: &self.stored,
                sums: RawSlice::new(NonNull::from(self.sums.as_mut_slice()).cast::<f64>(), self.sums.len()),
                span: shape.span(number),
                backwards: number % 2 == 1,
                shape,
                ends: ends.is_some_and(|end| number >= end),
                sink,
                isa: current_isa(),
            };
            let last = pass.ends || number == shape.barriers;
            match elsewhere.as_mut().map(|elsewhere| elsewhere.pass(&pass)) {
                None => pass.run(&mut self.spare),
                Some(None) => return Outcome { emitted: false, skipped: false },
                Some(Some(added)) => self.sums.iter_mut().zip(added).for_each(|(sum, added)| *sum += added),
            }
            if let Some(ranks) = self.ranks.as_mut().filter(|_| shape.adds_in(number))
                && let Err(error) = ranks.complete(&self.sums, shape.sums)
            {
                at.fail(error);
                return Outcome { emitted: false, skipped: false };
            }
            if last {
                break;
            }
            let mut tree = WholeTree {
                structure: at.structure,
                active: &self.active,
                resting: at.absent,
                stored: &mut self.stored,
                rows: &mut self.rows.of_leaf,
                params: &self.params,
                grads: if at.gradients { &self.grads } else { &[] },
                copies: &mut self.copies,
                there: &mut self.there,
                objective: objective.as_mut().map(|ask| &mut **ask as &mut dyn Ask),
                remote: elsewhere.as_mut().map(|elsewhere| &mut **elsewhere as &mut dyn RemoteTree),
            };
            let sums = complete(&self.ranks, Sums { values: &self.sums, ..none });
            transformation.barrier(state, &mut run, at, number, sums, &mut tree);
            let done = elsewhere.as_mut().is_none_or(|elsewhere| elsewhere.leaves(number).is_some());
            if !done || at.has_failed() || objective.as_ref().is_some_and(|objective| objective.failed()) {
                // Only the last pass writes parameters.
                return Outcome { emitted: false, skipped: false };
            }
        }
        let mut outcome = Outcome { emitted: at.gradients, skipped: false };
        let sums = complete(&self.ranks, Sums { values: &self.sums, ..none });
        transformation.finish(state, run, sums, &mut outcome);
        outcome
    }
}

/// The sums of all machines, where there are others.
fn complete<'a>(ranks: &'a Option<Box<Ranks>>, here: Sums<'a>) -> Sums<'a> {
    ranks.as_ref().map_or(here, |ranks| ranks.sums(here))
}

/// One pass over all leaves.
pub(crate) struct Pass<'a, T: Stage> {
    transformation: &'a T,
    state: &'a T::State,
    run: &'a T::Run,
    structure: &'a Structure,
    pieces: &'a Pieces,
    params: &'a [TableLeaf],
    grads: &'a [TableLeaf],
    absent: &'a [bool],
    stored: &'a [Buffer],
    sums: RawSlice,
    span: Span,
    /// Whether it begins with the last piece: what the pass before went through last is still in the cache. No bit
    /// depends on the order, since sums are kept by piece.
    backwards: bool,
    shape: Shape,
    /// All updates are zero after this pass, and no further pass is needed.
    ends: bool,
    sink: Sink<'a>,
    isa: Isa,
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
    fn run(&self, spare: &mut Spare) {
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
                fused::on_piece::<T, C>(t, held, leaf, place, room, pass, |kernel, part, slots, ahead| {
                    let (start, len, g) = (piece.start + part.start, part.len(), &g[part]);
                    if adds {
                        return kernel::apply::<T, C>(isa, kernel, g, p.data.slice_mut(start, len), slots);
                    }
                    if const { T::FUSES_ALWAYS } {
                        let p = p.data.slice(start, len);
                        return kernel::pass::<T, C, true>((isa, pass), kernel, g, &mut [], p, slots, ahead);
                    }
                    Added::default()
                })
            };
            if done {
                return;
            }
        }
        let mut ahead = Ahead::new();
        for done in (0..piece.len).step_by(TILE) {
            let len = TILE.min(piece.len - done);
            let tile = Piece { leaf, start: piece.start + done, from: piece.from + done, len };
            // One loop alone has no other that could ask for what it waits for.
            let follows = const { !T::FUSES_ALWAYS } && piece.len - done >= 2 * TILE;
            ahead.begin(follows);
            self.tile(&tile, source.as_ref(), sums, spare, &mut ahead);
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
        sums: &mut [f64],
        spare: &mut [C],
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
        // The constant stands alone, so that of a chain that is one loop only the passes that it has are compiled.
        if const { T::FUSES_ALWAYS } {
            fused::chain_tile(self.transformation, (self.state, self.run), self.span.to, &mut tile);
        } else {
            self.transformation.tile(self.state, self.run, Place::default(), self.span, &mut tile);
        }
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
