//! What does not change from tile to tile of a piece, looked up once.
//!
//! A chain that is not one loop goes through a piece tile by tile, and each of its members has a loop. Finding state
//! arrays and choosing the loop takes as long as the loop itself, so members that are one loop do it for a whole piece.
#![allow(unsafe_code, reason = "state arrays are cut into the same pieces as the leaves they belong to; see `memory`")]

use super::ahead::{Ahead, ask_for};
use super::factors::{Factors, Scale, Times};
use super::fused::{self, SlotList, local_span, with_list};
use super::gives::Gives;
use super::isa::Isa;
use super::kernel::Slots;
use super::passes::{self, Beside, FromTo, PassFn};
use super::sums::{Added, NOTHING};
use super::written::add_direct;
use super::{PieceAt, Shape, Span, Stage, TILE, Tile};
use crate::element::Real;
use crate::memory::RawSlice;

/// What a part of a pass may be given of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Takes {
    /// Tiles.
    Tiles,
    /// Also tiles that are read where they lie.
    Lying,
    /// Also parts of these.
    Parts,
}

/// A stage's part of one pass over one piece.
pub trait InPiece<C: Real> {
    /// Transforms a tile of the piece, or a part of one: tiles come in order.
    fn tile(&mut self, tile: &mut Tile<'_, C>);

    /// Itself, for what is done to all parts alike and compiled once for a type of numbers.
    fn part(&mut self) -> &mut (dyn InPiece<C> + '_);

    /// The same between neighbours that multiply.
    fn tile_between(&mut self, tile: &mut Tile<'_, C>, scale: &Scale<C>) {
        between(self.part(), tile, scale);
    }

    /// The same, and adds the updates to the parameters. Those whose updates are zero are not touched.
    ///
    /// # Safety
    ///
    /// The parameters are lent for the step to be written, and the tile is the caller's alone; what it has of them is
    /// not used any more.
    unsafe fn add(&mut self, tile: &mut Tile<'_, C>, params: Params, scale: &Scale<C>) {
        // SAFETY: by the caller's promise.
        unsafe { add_apart(self.part(), tile, params, scale) };
    }

    /// Does the same to a stretch of the piece by one loop, if it is one: from gradients, or stored updates, of which
    /// the number of the first element is given too. Returns whether it is.
    ///
    /// # Safety
    ///
    /// As for [`add`](InPiece::add).
    unsafe fn add_at_once(&mut self, _: (&[C], usize), _: Params, _: &Scale<C>) -> bool {
        false
    }

    /// In a pass that gives out nothing: does the same to a stretch of the piece, from updates and parameters, by one
    /// loop, if it is one. The number of the first element is given too. Returns whether it is.
    fn hold_at_once(&mut self, _: (&[C], &[C]), _: usize, _: Isa) -> bool {
        false
    }

    /// What it may be given.
    fn takes(&self) -> Takes {
        Takes::Tiles
    }

    /// What it multiplies every update by, if it does nothing else.
    fn factors(&self) -> Option<Factors<C>> {
        None
    }

    /// Whether it may [leave](InPiece::leaves) tiles.
    fn may_leave(&self) -> bool {
        false
    }

    /// Whether it has nothing to do with a tile: looks at it, and writes and adds up nothing.
    fn leaves(&mut self, _: &mut Tile<'_, C>) -> bool {
        false
    }
}

/// The parameters of a leaf, which lie as they are calculated with, to be written by an instruction set.
#[derive(Clone, Copy)]
pub struct Params {
    pub(crate) at: RawSlice,
    pub(crate) isa: Isa,
}

/// Who is given a stage's part. It comes as a reference, so that one piece needs no memory of its own.
pub type Then<'t, C> = dyn FnMut(&mut dyn InPiece<C>) + 't;

/// Transforms a tile between neighbours, which have loops of their own.
#[inline(never)]
pub(super) fn between<C: Real>(part: &mut dyn InPiece<C>, tile: &mut Tile<'_, C>, scale: &Scale<C>) {
    Times(scale.before).tile(tile);
    part.tile(tile);
    Times(scale.after).tile(tile);
}

/// Transforms a tile and adds the updates to the parameters, by loops of their own.
///
/// # Safety
///
/// As for [`InPiece::add`].
#[inline(never)]
pub(super) unsafe fn add_apart<C: Real>(
    part: &mut dyn InPiece<C>,
    tile: &mut Tile<'_, C>,
    params: Params,
    scale: &Scale<C>,
) {
    part.tile_between(tile, &Scale { after: Factors::default(), ..*scale });
    if !(tile.zero && scale.after.is_none()) {
        let start = tile.start;
        // SAFETY: by the caller's promise.
        unsafe { add_direct(params.at, params.isa, start, tile.input(), scale.after) };
    }
}

/// The part of what has nothing to do in a pass.
impl<C: Real> InPiece<C> for () {
    fn tile(&mut self, _: &mut Tile<'_, C>) {}

    fn part(&mut self) -> &mut (dyn InPiece<C> + '_) {
        self
    }

    fn takes(&self) -> Takes {
        Takes::Parts
    }

    fn factors(&self) -> Option<Factors<C>> {
        Some(Factors::default())
    }
}

/// Finds everything anew for each tile.
struct ByTile<'a, S: Stage> {
    stage: &'a S,
    state: &'a S::State,
    run: &'a S::Run,
    at: PieceAt,
    takes: Takes,
}

impl<S: Stage, C: Real> InPiece<C> for ByTile<'_, S> {
    fn tile(&mut self, tile: &mut Tile<'_, C>) {
        self.stage.tile(self.state, self.run, self.at.place, self.at.span, tile);
    }

    fn part(&mut self) -> &mut (dyn InPiece<C> + '_) {
        self
    }

    fn takes(&self) -> Takes {
        self.takes
    }
}

/// The way that every stage can go.
#[inline(never)]
pub(crate) fn by_tile<S: Stage, C: Real>(
    stage: &S,
    (state, run): (&S::State, &S::Run),
    at: PieceAt,
    then: &mut Then<'_, C>,
) {
    // Sums are added up by tile.
    let takes = if stage.shape().sums == 0 { Takes::Parts } else { Takes::Tiles };
    then(&mut ByTile { stage, state, run, at, takes });
}

/// The same, for what calculates so long that it has to ask for the memory of what comes next: that is done by tile.
pub(crate) fn by_whole_tile<S: Stage, C: Real>(
    stage: &S,
    (state, run): (&S::State, &S::Run),
    at: PieceAt,
    then: &mut Then<'_, C>,
) {
    then(&mut ByTile { stage, state, run, at, takes: Takes::Tiles });
}

/// One loop, with what it needs in this pass. All that is compiled for each stage is the call of its own loop: from one
/// place for all loops the processor could not tell which comes next, and would not begin it while it waits for memory.
struct OneLoop<'a, S: Stage, C: Real> {
    /// The pass that [`passes::map`] has found.
    pass: PassFn<S, C>,
    kernel: S::Kernel<C>,
    around: AroundLoop<'a, C>,
}

impl<S: Stage, C: Real> OneLoop<'_, S, C> {
    /// How its loop gives out updates between neighbours, if it does nothing else. One without state can leave out what
    /// it adds up.
    fn gives(&self, scale: &Scale<C>) -> Option<Gives<C>> {
        let AroundLoop { local, adds, .. } = self.around;
        let only_gives = S::SHAPE.gives_in(local.to) || S::SLOTS == 0 && local.to >= S::SHAPE.barriers && !adds;
        if only_gives { scale.of_loop().map(|gives| gives.adding(adds)) } else { None }
    }

    /// Whether it counts nothing in a tile, and so leaves it as it is.
    fn counts_nothing(&mut self, tile: &mut Tile<'_, C>) -> bool {
        let drops = core::mem::replace(&mut self.around.drops, true);
        let counted = self.on_tile(tile, Gives::out());
        self.around.drops = drops;
        let leaves = counted == NOTHING;
        debug_assert!(
            !leaves || self.stays(tile),
            "a part with `CHANGES_WHAT_IT_COUNTS` changes what it counts nothing of"
        );
        leaves
    }

    /// Whether its loop leaves a tile as it is, to the bit.
    fn stays(&mut self, tile: &mut Tile<'_, C>) -> bool {
        let (mut room, input) = ([C::zero(); TILE], tile.input());
        let before = &mut room[..input.len()];
        before.copy_from_slice(input);
        self.on_tile(tile, Gives::out());
        let bits = |x: &C| x.as_f64().to_bits();
        tile.input().iter().map(bits).eq(before.iter().map(bits))
    }

    fn run(&mut self, tile: &mut Tile<'_, C>, gives: Gives<C>) {
        let added = self.on_tile(tile, gives);
        if const { S::SHAPE.sums > 0 } {
            self.around.after(tile, &added);
        }
    }

    #[inline]
    fn on_tile(&mut self, tile: &mut Tile<'_, C>, gives: Gives<C>) -> Added {
        let gives = gives.asking(tile.source.is_some());
        let (isa, kernel, pass) = (tile.isa, &self.kernel, self.pass);
        let pass = const { passes::only::<S, C>() }.unwrap_or(pass);
        if const { S::SLOTS > 0 } {
            self.around.ask(tile);
        }
        match self.around.before(tile) {
            Some((from_to, beside)) => pass(isa, kernel, gives, from_to, beside),
            None => self.around.converted(tile, &mut |from_to, beside| pass(isa, kernel, gives, from_to, beside)),
        }
    }
}

impl<S: Stage, C: Real> InPiece<C> for OneLoop<'_, S, C> {
    fn tile(&mut self, tile: &mut Tile<'_, C>) {
        self.run(tile, Gives::out().adding(self.around.adds));
    }

    fn part(&mut self) -> &mut (dyn InPiece<C> + '_) {
        self
    }

    fn tile_between(&mut self, tile: &mut Tile<'_, C>, scale: &Scale<C>) {
        match self.gives(scale) {
            Some(gives) => self.run(tile, gives),
            None => between(self, tile, scale),
        }
    }

    unsafe fn add(&mut self, tile: &mut Tile<'_, C>, params: Params, scale: &Scale<C>) {
        let start = tile.start;
        // SAFETY: by the caller's promise.
        unsafe {
            if self.around.direct.is_none() || !self.add_at_once((tile.input(), start), params, scale) {
                add_apart(self, tile, params, scale);
            }
        }
    }

    unsafe fn add_at_once(&mut self, (g, start): (&[C], usize), Params { at, isa }: Params, scale: &Scale<C>) -> bool {
        let pass = const { passes::only::<S, C>() }.unwrap_or(self.pass);
        let Some(gives) = self.gives(scale) else { return false };
        let AroundLoop { direct: Some(slots), at: piece, no_ahead, .. } = &mut self.around else { return false };
        // SAFETY: by the caller's promise.
        let params = unsafe { at.slice_mut(start, g.len()) };
        // It has the parameters where it writes.
        let from_to = (g, params, g);
        pass(isa, &self.kernel, gives.to_params(), from_to, (slots, start - piece.start, no_ahead));
        true
    }

    /// State that is converted is converted by tile, and sums are added up by tile.
    fn takes(&self) -> Takes {
        match (self.around.list.is_converted::<C>(), self.around.adds) {
            (true, _) => Takes::Tiles,
            (_, true) => Takes::Lying,
            (_, false) => Takes::Parts,
        }
    }

    fn may_leave(&self) -> bool {
        S::LEAVES && !self.around.has_left()
    }

    fn leaves(&mut self, tile: &mut Tile<'_, C>) -> bool {
        // A constant chooses it; see `ways`.
        let counts_nothing: Option<fn(&mut Self, &mut Tile<'_, C>) -> bool> =
            const { if S::LEAVES { Some(Self::counts_nothing) } else { None } };
        counts_nothing.is_some_and(|counts_nothing| counts_nothing(self, tile))
    }

    fn factors(&self) -> Option<Factors<C>> {
        self.around.factors(S::LEAVES)
    }
}

/// What a loop needs, whichever it is. What is done once for a piece, or where state is converted, is compiled once for
/// a type of numbers; what is done for each tile is part of each stage, where it takes a twelfth less time.
struct AroundLoop<'a, C: Real> {
    shape: &'static Shape,
    list: SlotList<'a>,
    /// The state arrays of the piece, where they lie as they are calculated with; else they are converted tile by tile.
    direct: Option<Slots<'a, C>>,
    at: PieceAt,
    /// The span in its own barriers.
    local: Span,
    /// Whether it has to do with its state arrays in this pass.
    touches: bool,
    /// Whether it adds up in this pass.
    adds: bool,
    /// Whether that is all it has to do: nobody reads its updates.
    drops: bool,
    /// What it multiplies by in a pass in which it adds up nothing, if that is all it does.
    factor: Option<C>,
    /// For tiles after which nothing is read.
    no_ahead: Ahead,
}

/// A loop on a tile.
type OnTile<'r, C> = dyn FnMut(FromTo<'_, C>, Beside<'_, '_, C>) -> Added + 'r;

impl<'a, C: Real> AroundLoop<'a, C> {
    /// Without state arrays. Inlined, so that it is made where it stays: it is large.
    #[inline(always)]
    fn new(shape: &'static Shape, at: PieceAt, local: Span, drops: bool) -> AroundLoop<'a, C> {
        let (list, no_ahead) = (SlotList::new(), Ahead::new());
        AroundLoop { shape, list, direct: None, at, local, touches: false, adds: false, drops, factor: None, no_ahead }
    }

    /// Finds out what is to be done in this pass, with which arrays.
    #[inline(never)]
    fn find(&mut self) {
        let AroundLoop { shape, at, local, .. } = *self;
        // A pass that only repeats what an earlier pass has done must not count it twice.
        self.adds = shape.adds_in(local.to) && at.span.to <= at.place.at + shape.barriers;
        self.touches = local.meets(shape.stateful);
        if self.list.is_native::<C>() {
            // SAFETY: the engine holds the state exclusively for the step and gives each piece to one task; while this
            // part is there, nothing else of the stage is run on the piece.
            self.direct = Some(unsafe { self.list.slices(at.start, at.len) });
        }
    }

    /// Whether it has left the piece as it is in an earlier pass, and so does in this one.
    fn has_left(&self) -> bool {
        let AroundLoop { shape, at, adds, .. } = *self;
        !adds && at.quiet.has(at.place.sum..at.place.sum + shape.sums)
    }

    /// What it multiplies by, if it does nothing else; `leaves` says whether it may have left the piece as it is.
    fn factors(&self, leaves: bool) -> Option<Factors<C>> {
        match leaves && self.has_left() {
            true => Some(Factors::default()),
            false if self.adds => None,
            false => self.factor.map(Factors::one),
        }
    }

    /// Says which state arrays come after those of a tile.
    fn ask(&self, tile: &mut Tile<'_, C>) {
        if self.touches {
            tile.reads(&self.list);
        }
    }

    /// What the loop is given for a tile, if state arrays need not be converted.
    fn before<'s>(&'s mut self, tile: &'s mut Tile<'_, C>) -> Option<(FromTo<'s, C>, Beside<'s, 'a, C>)> {
        let (first, slots, p) = (tile.start - self.at.start, self.direct.as_mut()?, tile.p);
        let ((from, to), ahead) = if self.drops { tile.input_and_ahead() } else { tile.io_and_ahead() };
        Some(((from, to, p), (slots, first, ahead.unwrap_or(&mut self.no_ahead))))
    }

    /// Runs the loop with state arrays that are converted.
    #[inline(never)]
    fn converted(&mut self, tile: &mut Tile<'_, C>, run: &mut OnTile<'_, C>) -> Added {
        let (start, n, isa, p) = (tile.start, tile.u.len(), tile.isa, tile.p);
        let (mut ahead, spare) = (tile.ahead.take(), core::mem::take(&mut tile.spare));
        if let Some(source) = tile.source.filter(|_| self.list.has_found()) {
            let memory = source.as_ptr_range();
            ask_for(memory.start.addr()..memory.end.addr());
        }
        let (from, to) = tile.io();
        let mut added = NOTHING;
        with_list(&self.list, start, n, (isa, spare), ahead.as_deref_mut(), &mut |mut slots, ahead| {
            added = run((from, to, p), (&mut slots, 0, ahead));
        });
        (tile.ahead, tile.spare) = (ahead, spare);
        added
    }

    /// Adds what a tile has added up to the sums.
    fn after(&mut self, tile: &mut Tile<'_, C>, added: &Added) {
        if self.adds {
            fused::add(self.shape, added, self.at.place, tile.sums);
        }
    }
}

/// Whether tiles go through one loop where a stage fuses. Of what has looked at whole leaves and then adds up only
/// whole passes do: as a member of a box it could be asked for any span of its passes, of which `adafactor` has ten.
pub(super) const fn by_one_loop<S: Stage>() -> bool {
    S::FUSES && (S::SHAPE.looks == 0 || S::SHAPE.sums == 0)
}

/// The way of a stage that is one loop for this leaf in this step.
#[inline(never)]
pub(crate) fn one_loop<S: Stage, C: Real>(
    stage: &S,
    (state, run): (&S::State, &S::Run),
    at: PieceAt,
    then: &mut Then<'_, C>,
) {
    let Some(local) = local_span(S::SHAPE.barriers, at.place.at, at.span) else { return then(&mut ()) };
    let mut one = OneLoop::<S, C> {
        pass: passes::map::<S, C>(local),
        kernel: stage.kernel(state, run, at.leaf),
        // Loops with state write updates all the same.
        around: AroundLoop::new(
            const { &S::SHAPE },
            at,
            local,
            S::SLOTS == 0 && at.drops && local.to < S::SHAPE.barriers,
        ),
    };
    one.around.list.fill(stage, state, at.leaf);
    one.around.factor = S::factor(&one.kernel, local);
    one.around.find();
    then(&mut one);
}
