//! What does not change from tile to tile of a piece, looked up once.
//!
//! A chain that is not one loop goes through a piece tile by tile, and each of its members has a loop. Finding state
//! arrays and choosing the loop takes as long as the loop itself, so members that are one loop do it for a whole piece.
#![allow(unsafe_code, reason = "state arrays are cut into the same pieces as the leaves they belong to; see `memory`")]

use super::ahead::Ahead;
use super::factors::{Factors, Times};
use super::fused::{self, SlotList, local_span, with_list};
use super::kernel::Slots;
use super::passes::{self, Beside, FromTo, PassFn};
use super::sums::{Added, Lanes, NOTHING};
use super::tile::TILE;
use super::{Place, Shape, Span, Stage, Tile};
use crate::element::Real;

/// Which piece of which leaf, on its way through which part of which pass.
#[derive(Clone, Copy, Debug)]
pub struct PieceAt {
    pub(crate) place: Place,
    pub(crate) span: Span,
    pub(crate) leaf: usize,
    pub(crate) start: usize,
    pub(crate) len: usize,
}

impl PieceAt {
    /// A tile as a piece of its own.
    pub(crate) fn of_tile<C>(place: Place, span: Span, tile: &Tile<'_, C>) -> PieceAt {
        PieceAt { place, span, leaf: tile.leaf, start: tile.start, len: tile.u.len() }
    }

    /// The same piece, for what follows a stage of this shape.
    pub(crate) fn after(self, shape: Shape) -> PieceAt {
        PieceAt { place: self.place.after(shape), ..self }
    }
}

/// A stage's part of one pass over one piece.
pub trait InPiece<C: Real> {
    /// Transforms a tile of the piece, or a part of one: tiles come in order.
    fn tile(&mut self, tile: &mut Tile<'_, C>);

    /// Whether it may be given parts of tiles.
    fn splits(&self) -> bool {
        false
    }

    /// What it multiplies every update by, if it does nothing else.
    fn factors(&self) -> Option<Factors<C>> {
        None
    }

    /// What it multiplies every update by at its end. It does not do so any more: whoever asks does.
    fn take_factors(&mut self) -> Factors<C> {
        Factors::default()
    }
}

/// Who is given a stage's part. It comes as a reference, so that one piece needs no memory of its own.
pub type Then<'t, C> = dyn FnMut(&mut dyn InPiece<C>) + 't;

/// The members of a chain, in a pass.
pub(crate) trait Members<C: Real> {
    fn len(&self) -> usize;
    fn shape(&self, member: usize) -> Shape;
    /// As [`Stage::in_piece`].
    fn in_piece(&self, member: usize, at: PieceAt, then: &mut Then<'_, C>);
}

/// What members do in a piece, one after the other.
pub(crate) fn in_members<C: Real>(members: &dyn Members<C>, at: PieceAt, then: &mut Then<'_, C>) {
    from_member(members, 0, at, Factors::default(), then);
}

/// The same from the member `first` on, after factors that those before it have left to be multiplied by.
fn from_member<C: Real>(
    members: &dyn Members<C>,
    first: usize,
    at: PieceAt,
    pending: Factors<C>,
    then: &mut Then<'_, C>,
) {
    if first == members.len() {
        return then(&mut Times(pending));
    }
    members.in_piece(first, at, &mut |part| {
        let at = at.after(members.shape(first));
        if let Some(factors) = part.factors().and_then(|factors| pending.and(factors)) {
            return from_member(members, first + 1, at, factors, then);
        }
        from_member(members, first + 1, at, Factors::default(), &mut |rest| match pending.is_none() {
            true => then(&mut Both(&mut *part, rest)),
            false => then(&mut Both(&mut Times(pending), &mut Both(&mut *part, rest))),
        });
    });
}

/// The two of them one after the other.
struct Both<'a, C: Real>(&'a mut dyn InPiece<C>, &'a mut dyn InPiece<C>);

impl<C: Real> InPiece<C> for Both<'_, C> {
    fn tile(&mut self, tile: &mut Tile<'_, C>) {
        self.0.tile(tile);
        self.1.tile(tile);
    }

    fn splits(&self) -> bool {
        self.0.splits() && self.1.splits()
    }

    fn take_factors(&mut self) -> Factors<C> {
        self.1.take_factors()
    }
}

/// The part of what has nothing to do in a pass.
impl<C: Real> InPiece<C> for () {
    fn tile(&mut self, _: &mut Tile<'_, C>) {}

    fn splits(&self) -> bool {
        true
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
    splits: bool,
}

impl<S: Stage, C: Real> InPiece<C> for ByTile<'_, S> {
    fn tile(&mut self, tile: &mut Tile<'_, C>) {
        self.stage.tile(self.state, self.run, self.at.place, self.at.span, tile);
    }

    fn splits(&self) -> bool {
        self.splits
    }
}

/// The way that every stage can go.
pub(crate) fn by_tile<S: Stage, C: Real>(
    stage: &S,
    (state, run): (&S::State, &S::Run),
    at: PieceAt,
    then: &mut Then<'_, C>,
) {
    // Sums are added up by tile.
    let splits = stage.shape().sums == 0;
    then(&mut ByTile { stage, state, run, at, splits });
}

/// The same, for what calculates so long that it has to ask for the memory of what comes next: that is done by tile.
pub(crate) fn by_whole_tile<S: Stage, C: Real>(
    stage: &S,
    (state, run): (&S::State, &S::Run),
    at: PieceAt,
    then: &mut Then<'_, C>,
) {
    then(&mut ByTile { stage, state, run, at, splits: false });
}

/// One loop, with what it needs in this pass. All that is compiled for each stage is the call of its own loop: from one
/// place for all loops the processor could not tell which comes next, and would not begin it while it waits for memory.
struct OneLoop<'a, S: Stage, C: Real> {
    /// The pass that [`passes::map`] has found.
    pass: PassFn<S, C>,
    kernel: S::Kernel<C>,
    around: AroundLoop<'a, C>,
}

impl<S: Stage, C: Real> InPiece<C> for OneLoop<'_, S, C> {
    fn tile(&mut self, tile: &mut Tile<'_, C>) {
        let (isa, kernel, pass) = (tile.isa, &self.kernel, self.pass);
        let pass = const { passes::only::<S, C>() }.unwrap_or(pass);
        let added = match self.around.before(tile) {
            Some((from_to, beside)) => pass(isa, kernel, from_to, beside),
            None => self.around.converted(tile, &mut |from_to, beside| pass(isa, kernel, from_to, beside)),
        };
        self.around.after(tile, added);
    }

    /// State that is converted is converted by tile.
    fn splits(&self) -> bool {
        self.around.direct.is_some()
    }

    fn factors(&self) -> Option<Factors<C>> {
        if self.around.adds { None } else { S::factor(&self.kernel, self.around.local).map(Factors::one) }
    }
}

/// What a loop needs, whichever it is.
struct AroundLoop<'a, C: Real> {
    shape: &'static Shape,
    list: SlotList,
    /// The state arrays of the piece, where they lie as they are calculated with; else they are converted tile by tile.
    direct: Option<Slots<'a, C>>,
    at: PieceAt,
    /// The span in its own barriers.
    local: Span,
    /// Whether it has to do with its state arrays in this pass.
    touches: bool,
    /// Whether it adds up in this pass.
    adds: bool,
    /// Whether only a part of a tile has come so far.
    carries: bool,
    /// What has been added up of that. Made when it is first needed, and zero again at the end of the tile.
    lanes: Option<Lanes>,
    /// For tiles after which nothing is read.
    no_ahead: Ahead,
}

/// A loop on a tile.
type OnTile<'r, C> = dyn FnMut(FromTo<'_, C>, Beside<'_, '_, C>) -> Added + 'r;

impl<'a, C: Real> AroundLoop<'a, C> {
    /// Without state arrays. Inlined, so that it is made where it stays: it is large.
    #[inline(always)]
    fn new(shape: &'static Shape, at: PieceAt, local: Span) -> AroundLoop<'a, C> {
        let (touches, adds, carries) = (false, false, false);
        let (list, no_ahead) = (SlotList::new(), Ahead::new());
        AroundLoop { shape, list, direct: None, at, local, touches, adds, carries, lanes: None, no_ahead }
    }

    /// Finds out what is to be done in this pass, with which arrays.
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

    /// Where in the piece a tile begins, and whether sums are due after it.
    fn place(&self, tile: &Tile<'_, C>) -> (usize, bool) {
        let (first, n) = (tile.start - self.at.start, tile.u.len());
        let done = first + n;
        (first, done.is_multiple_of(TILE) || done == self.at.len)
    }

    /// What the loop is given for a tile, if state arrays need not be converted.
    fn before<'s>(&'s mut self, tile: &'s mut Tile<'_, C>) -> Option<(FromTo<'s, C>, Beside<'s, 'a, C>)> {
        let (first, is_end) = self.place(tile);
        if self.touches {
            tile.reads(&self.list);
        }
        if self.adds && !is_end {
            self.carries = true;
            if self.lanes.is_none() {
                self.lanes = Some(Lanes::new());
            }
        }
        let lanes = if self.carries { self.lanes.as_mut() } else { None };
        let (slots, p) = (self.direct.as_mut()?, tile.p);
        let ((from, to), ahead) = tile.io_and_ahead();
        Some(((from, to, p), (slots, first, ahead.unwrap_or(&mut self.no_ahead), lanes)))
    }

    /// Runs the loop with state arrays that are converted.
    fn converted(&mut self, tile: &mut Tile<'_, C>, run: &mut OnTile<'_, C>) -> Added {
        let (start, n, isa, p) = (tile.start, tile.u.len(), tile.isa, tile.p);
        let (mut ahead, spare) = (tile.ahead.take(), core::mem::take(&mut tile.spare));
        let mut lanes = if self.carries { self.lanes.as_mut() } else { None };
        let (from, to) = tile.io();
        let mut added = NOTHING;
        with_list(&self.list, start, n, (isa, spare), ahead.as_deref_mut(), &mut |mut slots, ahead| {
            added = run((from, to, p), (&mut slots, 0, ahead, lanes.as_deref_mut()));
        });
        (tile.ahead, tile.spare) = (ahead, spare);
        added
    }

    /// Adds what a tile has added up to the sums, at its end.
    fn after(&mut self, tile: &mut Tile<'_, C>, mut added: Added) {
        if !self.adds || !self.place(tile).1 {
            return;
        }
        if let (true, Some(lanes)) = (self.carries, &mut self.lanes) {
            added = lanes.total(self.shape);
            lanes.clear(self.shape.sums);
            self.carries = false;
        }
        fused::add(self.shape, &added, self.at.place, tile.sums);
    }
}

/// The way of a stage that is one loop for this leaf in this step.
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
        around: AroundLoop::new(const { &S::SHAPE }, at, local),
    };
    one.around.list.fill(stage, state, at.leaf);
    one.around.find();
    then(&mut one);
}
