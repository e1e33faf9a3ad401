//! What does not change from tile to tile of a piece, looked up once.
//!
//! A chain that is not one loop goes through a piece tile by tile, and each of its members has a loop. Finding state
//! arrays and choosing the loop takes as long as the loop itself, so members that are one loop do it for a whole piece.
#![allow(unsafe_code, reason = "state arrays are cut into the same pieces as the leaves they belong to; see `memory`")]

use super::ahead::Ahead;
use super::factors::{Factors, Times};
use super::fused::{self, SlotList, local_span, with_list};
use super::isa::Isa;
use super::kernel::Slots;
use super::passes::{self, Beside, FromTo};
use super::sums::{Added, Lanes};
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
}

impl<S: Stage, C: Real> InPiece<C> for ByTile<'_, S> {
    fn tile(&mut self, tile: &mut Tile<'_, C>) {
        self.stage.tile(self.state, self.run, self.at.place, self.at.span, tile);
    }

    /// Sums are added up by tile.
    fn splits(&self) -> bool {
        self.stage.shape().sums == 0
    }
}

/// The way that every stage can go.
pub(crate) fn by_tile<S: Stage, C: Real>(
    stage: &S,
    (state, run): (&S::State, &S::Run),
    at: PieceAt,
    then: &mut Then<'_, C>,
) {
    then(&mut ByTile { stage, state, run, at });
}

/// The loop of a stage with its kernel: all of [`OneLoop`] that is compiled for each stage.
trait Loop<C: Real> {
    /// As [`passes::map`].
    fn run(&self, how: (Isa, Span), from_to: FromTo<'_, C>, beside: Beside<'_, '_, C>) -> Added;
    /// As [`Stage::factor`].
    fn factor(&self, span: Span) -> Option<C>;
}

struct LoopOf<S: Stage, C: Real>(S::Kernel<C>);

impl<S: Stage, C: Real> Loop<C> for LoopOf<S, C> {
    fn run(&self, how: (Isa, Span), from_to: FromTo<'_, C>, beside: Beside<'_, '_, C>) -> Added {
        passes::map::<S, C>(how, &self.0, from_to, beside)
    }

    fn factor(&self, span: Span) -> Option<C> {
        S::factor(&self.0, span)
    }
}

/// One loop, with what it needs in this pass.
struct OneLoop<'a, C: Real> {
    of: &'a dyn Loop<C>,
    shape: Shape,
    list: SlotList,
    /// The state arrays of the piece, where they lie as they are calculated with; else they are converted tile by tile.
    direct: Option<Slots<'a, C>>,
    at: PieceAt,
    /// The span in its own barriers.
    local: Span,
    /// Whether it adds up in this pass.
    adds: bool,
    /// What has been added up of a tile, as long as only a part of it has come.
    lanes: Option<Lanes>,
}

impl<C: Real> InPiece<C> for OneLoop<'_, C> {
    fn tile(&mut self, tile: &mut Tile<'_, C>) {
        let (start, n, isa, p) = (tile.start, tile.u.len(), tile.isa, tile.p);
        let first = start - self.at.start;
        if self.local.meets(self.shape.stateful) {
            tile.reads(&self.list);
        }
        let done = first + n;
        let is_end = done.is_multiple_of(TILE) || done == self.at.len;
        if self.adds && !is_end && self.lanes.is_none() {
            self.lanes = Some(Lanes::new());
        }
        let (of, lanes, span) = (self.of, &mut self.lanes, self.local);
        let (mut ahead, spare) = (tile.ahead.take(), core::mem::take(&mut tile.spare));
        let (from, to) = tile.io();
        let mut added = Added::default();
        let run = &mut |slots: (&mut Slots<'_, C>, usize), ahead: &mut Ahead| {
            added = of.run((isa, span), (from, to, p), (slots.0, slots.1, ahead, lanes.as_mut()));
        };
        match &mut self.direct {
            Some(slots) => run((slots, first), ahead.as_deref_mut().unwrap_or(&mut Ahead::new())),
            None => {
                with_list(&self.list, start, n, (isa, spare), ahead.as_deref_mut(), &mut |mut slots, ahead| {
                    run((&mut slots, 0), ahead);
                });
            }
        }
        (tile.ahead, tile.spare) = (ahead, spare);
        if self.adds && is_end {
            let added = self.lanes.take().map_or(added, |lanes| lanes.total(self.shape));
            fused::add(self.shape, &added, self.at.place, tile.sums);
        }
    }

    /// State that is converted is converted by tile.
    fn splits(&self) -> bool {
        self.direct.is_some()
    }

    fn factors(&self) -> Option<Factors<C>> {
        if self.adds { None } else { self.of.factor(self.local).map(Factors::one) }
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
    let list = SlotList::of(stage, state, at.leaf);
    let of = &LoopOf::<S, C>(stage.kernel(state, run, at.leaf));
    with_loop(of, S::SHAPE, list, (at, local), then);
}

fn with_loop<C: Real>(
    of: &dyn Loop<C>,
    shape: Shape,
    list: SlotList,
    (at, local): (PieceAt, Span),
    then: &mut Then<'_, C>,
) {
    // A pass that only repeats what an earlier pass has done must not count it twice.
    let adds = shape.adds_in(local.to) && at.span.to <= at.place.at + shape.barriers;
    let direct = match list.is_native::<C>() {
        // SAFETY: the engine holds the state exclusively for the step and gives each piece to one task; while this
        // part is there, nothing else of the stage is run on the piece.
        true => Some(unsafe { list.slices(at.start, at.len) }),
        false => None,
    };
    then(&mut OneLoop { of, shape, list, direct, at, local, adds, lanes: None });
}
