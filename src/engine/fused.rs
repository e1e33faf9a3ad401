//! Running a fused loop on a tile, or on a whole piece at once.
#![allow(unsafe_code, reason = "state arrays are cut into the same pieces as the leaves they belong to; see `memory`")]

use core::ops::Range;

use super::ahead::Ahead;
#[cfg(feature = "half")]
use super::blocks::{SlotBlocks, WriteBlocks};
use super::convert::{load, store};
use super::found::Found;
use super::isa::{Isa, Job, dispatch_chain};
use super::kernel::{MOST_SLOTS, Slots, no_slots};
use super::passes::{self, Passes};
use super::sums::{Added, NOTHING};
use super::tile::{Room, SHORT, STEP, TILE};
use super::{Place, Shape, Span, Stage, Tile};
#[cfg(feature = "half")]
use crate::element::CODED_BLOCK;
use crate::element::{InRecord, Real};
use crate::memory::RawSlice;
use crate::state::Moments;

/// The state arrays of one leaf, in the order in which a fused loop has them.
pub struct SlotList<'a> {
    slots: [Option<RawSlice>; MOST_SLOTS],
    /// Which arrays they are, for values that are nowhere in memory.
    arrays: [usize; MOST_SLOTS],
    len: usize,
    /// What those have that are no arrays, and which these are. A loop has such of one part only.
    found: Option<(Found<'a>, Range<usize>)>,
}

impl<'a> SlotList<'a> {
    #[inline]
    pub(crate) fn new() -> SlotList<'a> {
        SlotList { slots: [None; MOST_SLOTS], arrays: [0; MOST_SLOTS], len: 0, found: None }
    }

    #[inline]
    pub(crate) fn of<S: Stage>(stage: &S, state: &'a S::State, leaf: usize) -> SlotList<'a> {
        let mut list = SlotList::new();
        list.fill(stage, state, leaf);
        list
    }

    #[inline]
    pub(super) fn fill<S: Stage>(&mut self, stage: &S, state: &'a S::State, leaf: usize) {
        stage.slots(state, leaf, self);
        // It is a constant from here on.
        assert_eq!(self.len, S::SLOTS, "a stage lists as many arrays as it has slots");
    }

    /// With what the loop of a pass is given.
    #[inline]
    fn fill_for<S: Stage, C: Real>(&mut self, pass: usize, (stage, state): (&S, &'a S::State), leaf: usize) {
        if Passes::<S, C>::GIVEN[pass] {
            self.fill(stage, state, leaf);
        }
    }

    /// Adds a leaf's array. Whoever adds it owns it together with the state that a step holds exclusively, and adds it
    /// once: that is what the slices made of the list rest on.
    pub(crate) fn push(&mut self, moments: &Moments, leaf: usize) {
        self.slots[self.len] = moments.raw(leaf);
        self.arrays[self.len] = moments.address();
        self.len += 1;
    }

    /// Adds so many numbers that have been found out of a leaf.
    pub(super) fn push_found(&mut self, found: Found<'a>, count: usize) {
        self.found = Some((found, self.len..self.len + count));
        self.len += count;
    }

    /// Whether each is an array of type `C`.
    #[inline]
    pub(crate) fn is_native<C: Real>(&self) -> bool {
        self.slots[..self.len].iter().all(|s| s.is_some_and(|s| s.dtype() == C::DTYPE))
    }

    /// How many arrays there are.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The arrays of values that are nowhere in memory.
    pub(super) fn in_record(&self) -> [Option<InRecord>; MOST_SLOTS] {
        core::array::from_fn(|slot| {
            let (address, raw) = (self.arrays[slot], self.slots[slot]);
            raw.map(|raw| InRecord { address, dtype: raw.dtype() })
        })
    }

    /// Says that a stretch of each array is read now.
    pub(crate) fn read(&self, start: usize, len: usize, ahead: &mut Ahead) {
        self.slots[..self.len].iter().flatten().for_each(|slot| ahead.reads(slot.addresses(start, len)));
    }

    /// Whether each array is there.
    fn is_whole(&self) -> bool {
        let is_found = |slot: &usize| self.found.as_ref().is_some_and(|(_, slots)| slots.contains(slot));
        (0..self.len).all(|slot| self.slots[slot].is_some() || is_found(&slot))
    }

    /// The arrays of whole blocks of a leaf, if none has another type than `f32` and those of 16 bits.
    ///
    /// # Safety
    ///
    /// As [`slices`](SlotList::slices).
    #[cfg(feature = "half")]
    pub(super) unsafe fn blocks<'s>(&self, stretch: Range<usize>, isa: Isa) -> Option<SlotBlocks<'s>> {
        let mut blocks = SlotBlocks::default();
        for (blocks, slot) in blocks.iter_mut().zip(&self.slots[..self.len]) {
            // SAFETY: by the caller's promise; different slots are different allocations.
            *blocks = unsafe { WriteBlocks::of_mut((*slot)?, stretch.clone(), isa) }?;
        }
        Some(blocks)
    }

    #[cfg(feature = "half")]
    fn is_coded(&self) -> bool {
        self.slots[..self.len].iter().flatten().any(|slot| slot.dtype().is_coded())
    }

    /// Elements that the arrays must be cut into multiples of, where loops need multiples of `block`.
    #[cfg(feature = "half")]
    pub(crate) fn block(&self, block: usize) -> usize {
        if self.is_coded() { block.max(CODED_BLOCK) } else { block }
    }

    /// The arrays of a piece, all of type `C`.
    ///
    /// # Safety
    ///
    /// The state is held exclusively, and no other task has this piece.
    #[inline]
    pub(super) unsafe fn slices<'s, C: Real>(&self, start: usize, len: usize) -> Slots<'s, C> {
        let mut slices = no_slots();
        for (i, slot) in self.slots[..self.len].iter().enumerate() {
            if let Some(slot) = slot {
                // SAFETY: by the caller's promise; different slots are different allocations.
                slices[i] = unsafe { slot.slice_mut(start, len) };
            }
        }
        slices
    }
}

/// Does pass `pass` of a stage that is a whole chain and always fuses on a tile.
pub(crate) fn chain_tile<S: Stage, C: Real>(
    stage: &S,
    (state, run): (&S::State, &S::Run),
    pass: usize,
    tile: &mut Tile<'_, C>,
) {
    let (isa, kernel) = (tile.isa, stage.kernel::<C>(state, run, tile.leaf));
    let mut list = SlotList::new();
    list.fill_for::<S, C>(pass, (stage, state), tile.leaf);
    let added = on_tile(&list, !S::SHAPE.drops(pass), tile, &mut InPass::<S, C> { isa, pass, kernel });
    if const { S::SHAPE.sums > 0 } {
        add(&S::SHAPE, &added, Place::default(), tile.sums);
    }
}

/// The loop of a pass, for a tile: from, to, parameters, state arrays. A trait of its own, since a closure that is
/// called by reference is compiled once more to be called by value.
trait OnTile<C> {
    fn run(&mut self, from: &[C], to: &mut [C], p: &[C], slots: Slots<'_, C>) -> Added;
}

/// The loop of a pass of a stage that is a whole chain.
struct InPass<S: Stage, C: Real> {
    isa: Isa,
    pass: usize,
    kernel: S::Kernel<C>,
}

impl<S: Stage, C: Real> OnTile<C> for InPass<S, C> {
    fn run(&mut self, from: &[C], to: &mut [C], p: &[C], mut slots: Slots<'_, C>) -> Added {
        passes::pass::<S, C>(self.isa, self.pass, &self.kernel, (from, to, p), &mut slots)
    }
}

/// Runs a loop on a tile, which writes updates or does not. Not part of every chain that calls it.
#[inline(never)]
fn on_tile<C: Real>(list: &SlotList<'_>, writes: bool, tile: &mut Tile<'_, C>, run: &mut dyn OnTile<C>) -> Added {
    let (start, n, isa) = (tile.start, tile.u.len(), tile.isa);
    tile.reads(list);
    tile.prefetch_share();
    let (p, spare) = (tile.p, core::mem::take(&mut tile.spare));
    let mut added = NOTHING;
    let (from, to) = tile.input_output(writes);
    with_list(list, start, n, (isa, spare), &mut |slots| added = run.run(from, to, p, slots));
    tile.spare = spare;
    added
}

/// Calls a function with the stretches of the listed state arrays that belong to a tile, in the compute type. The
/// function comes as a reference, here and below, so that this is compiled once and not for every loop there is.
pub(crate) fn with_list<C: Real>(
    list: &SlotList<'_>,
    start: usize,
    n: usize,
    (isa, spare): (Isa, &mut [C]),
    f: &mut dyn FnMut(Slots<'_, C>),
) {
    if list.is_native::<C>() {
        // SAFETY: the engine holds the state exclusively for the step and gives each piece to one task.
        return f(unsafe { list.slices(start, n) });
    }
    // Only arrays of other types are brought into the spare room and back, and what was found out into it.
    let is_other = |raw: &RawSlice| raw.dtype() != C::DTYPE;
    let mut chunks = spare.chunks_mut(STEP);
    let mut slots = no_slots();
    let listed = &list.slots[..list.len];
    for (slice, raw) in slots.iter_mut().zip(listed) {
        let Some(raw) = raw else { continue };
        if !is_other(raw) {
            // SAFETY: as above; different slots are different allocations.
            *slice = unsafe { raw.slice_mut(start, n) };
        } else if let Some(chunk) = chunks.next() {
            *slice = &mut chunk[..n];
            // SAFETY: as above.
            unsafe { load(isa, *raw, start, slice) };
        }
    }
    if let Some((found, which)) = &list.found {
        for slice in &mut slots[which.clone()] {
            *slice = chunks.next().map_or(&mut [], |chunk| &mut chunk[..n]);
        }
        found.fill(start, &mut slots[which.clone()]);
    }
    f(slots.each_mut().map(|s| &mut **s));
    for (slice, raw) in slots.iter().zip(listed) {
        // SAFETY: as above.
        raw.as_ref().filter(|raw| is_other(raw)).inspect(|raw| unsafe { store(isa, **raw, start, slice) });
    }
}

/// Does as much as it can of a stretch whose state has another type than the arithmetic, from its beginning: how many
/// elements these are.
type ByBlocks<'a, S, C> = dyn FnMut(&SlotList<'_>, &<S as Stage>::Kernel<C>) -> usize + 'a;

/// Does a pass on a stretch of a leaf by one loop, which is given how much of the stretch it is for, and the state
/// arrays: all of it where these have the compute type, else half a tile, whose state is brought into `room` and back;
/// a tile where something is added up, which is added up by tile. What `by_blocks` has done is left out. `beside` is
/// what else the loop reads, and where in it the stretch begins.
///
/// Returns whether it could.
///
/// # Safety
///
/// The state is held exclusively, and no other task has this stretch, which is one of whole [blocks](SlotList::block).
pub(crate) unsafe fn on_piece<S: Stage, C: Real>(
    stage: &S,
    (state, run): (&S::State, &S::Run),
    leaf: usize,
    (start, len, beside): (usize, usize, &[(RawSlice, usize); 2]),
    (isa, room, sums): (Isa, &mut Room<C>, &mut [f64]),
    (pass, by_blocks): (usize, &mut ByBlocks<'_, S, C>),
    mut run_loop: impl FnMut(&S::Kernel<C>, Range<usize>, &mut Slots<'_, C>) -> Added,
) -> bool {
    // Filled where it is, since it is four lines of the cache to copy.
    let mut list = SlotList::new();
    list.fill_for::<S, C>(pass, (stage, state), leaf);
    let native = list.is_native::<C>();
    if !native && !list.is_whole() {
        return false;
    }
    let kernel = stage.kernel::<C>(state, run, leaf);
    if native {
        let (step, mut done) = (if S::SHAPE.adds_in(pass) { TILE } else { len }, 0);
        while done < len {
            let n = step.min(len - done);
            // SAFETY: by the caller's promise.
            let mut slots = unsafe { list.slices(start + done, n) };
            let added = run_loop(&kernel, done..done + n, &mut slots);
            if const { S::SHAPE.sums > 0 } {
                add(&S::SHAPE, &added, Place::default(), sums);
            }
            done += n;
        }
        return true;
    }
    // Short, so that while one loop waits for memory the processor has begun the next.
    let step = if S::SHAPE.adds_in(pass) { TILE } else { SHORT };
    let begin = by_blocks(&list, &kernel);
    let ahead = &mut Ahead::new(len - begin >= 2 * step);
    for done in (begin..len).step_by(step) {
        let range = done..len.min(done + step);
        let (start, n) = (start + done, range.len());
        if ahead.is_first() {
            list.read(start, n, ahead);
            beside.iter().for_each(|(memory, first)| ahead.reads(memory.addresses(first + done, n)));
        }
        ahead.prefetch_share();
        with_list(&list, start, n, (isa, room.all()), &mut |mut slots| {
            let added = run_loop(&kernel, range.clone(), &mut slots);
            if const { S::SHAPE.sums > 0 } {
                add(&S::SHAPE, &added, Place::default(), sums);
            }
        });
        ahead.go_on(len - done >= 3 * step);
    }
    true
}

pub(super) fn add(shape: &Shape, added: &Added, place: Place, sums: &mut [f64]) {
    sums[place.sum..place.sum + shape.sums].iter_mut().zip(added).for_each(|(sum, added)| *sum += added);
}

/// A pass, as a stage with so many barriers of its own sees it; `None` if the stage has nothing to do in it.
pub(super) fn local_span(barriers: usize, at: usize, span: Span) -> Option<Span> {
    let to = span.to.checked_sub(at)?.min(barriers);
    let from = span.from.saturating_sub(at);
    (from <= to).then_some(Span { from, to, ..span })
}

/// Something done to a tile and the one state array that belongs to it.
pub(crate) trait SlotJob<C>: Copy {
    /// Must be `#[inline(always)]`, so that it takes on the instruction set of its caller.
    fn run(self, u: &mut [C], p: &[C], slot: &mut [C]);
}

struct OnSlot<'a, C, J> {
    job: J,
    u: &'a mut [C],
    p: &'a [C],
    slot: &'a mut [C],
}

impl<C: Real, J: SlotJob<C>> Job for OnSlot<'_, C, J> {
    type Output = ();
    const IS_RUN: bool = !C::RECORDS;
    #[inline(always)]
    fn run(self) {
        self.job.run(self.u, self.p, self.slot);
    }
}

/// Calls a function with a tile's stretch of a state array of the compute type; not where there is none.
pub(crate) fn with_stretch<C: Real>(
    moments: &Moments,
    (leaf, start, n): (usize, usize, usize),
    f: &mut dyn FnMut(&[C]),
) {
    let Some(raw) = moments.raw(leaf).filter(|raw| raw.dtype() == C::DTYPE) else { return };
    if const { C::RECORDS } {
        return f(&[C::record(&[moments.in_record(leaf)], 0..0, &|slots, _| slots[0])]);
    }
    // SAFETY: the engine holds the state exclusively for the step and gives each piece to one task.
    f(unsafe { raw.slice::<C>(start, n) });
}

/// Does something to a tile and the stretch of a state array that belongs to it, whatever its type.
pub(crate) fn slot_tile<C: Real, J: SlotJob<C>>(moments: &Moments, tile: &mut Tile<'_, C>, job: J) {
    let Some(raw) = moments.raw(tile.leaf) else { return };
    if const { C::RECORDS } {
        let p = tile.p[0];
        return tile.record(&[moments.in_record(tile.leaf)], 0..0, &|slot, u, _| {
            let mut u = [u];
            job.run(&mut u, &[p], slot);
            u[0]
        });
    }
    let (start, isa, n) = (tile.start, tile.isa, tile.u.len());
    tile.settle();
    if raw.dtype() == C::DTYPE {
        // SAFETY: the engine holds the state exclusively for the step and gives each piece to one task.
        let slot = unsafe { raw.slice_mut::<C>(start, n) };
        dispatch_chain(isa, OnSlot { job, u: tile.u, p: tile.p, slot });
    } else {
        let slot = &mut tile.spare[..n];
        // SAFETY: as above.
        unsafe { load(isa, raw, start, slot) };
        dispatch_chain(isa, OnSlot { job, u: tile.u, p: tile.p, slot: &mut *slot });
        // SAFETY: as above.
        unsafe { store(isa, raw, start, slot) };
    }
}

/// Does something to a tile as if the parameters were at another point: at arrays of their shapes and compute types.
pub(crate) fn at_point<C: Real>(point: &Moments, tile: &mut Tile<'_, C>, inside: &mut dyn FnMut(&mut Tile<'_, C>)) {
    let Some(raw) = point.raw(tile.leaf).filter(|raw| raw.dtype() == C::DTYPE) else { return inside(tile) };
    if const { C::RECORDS } {
        let there = [C::record(&[point.in_record(tile.leaf)], 0..0, &|slots, _| slots[0])];
        tile.settle();
        let mut moved = Tile::in_record(tile.leaf, tile.u, &there, tile.isa);
        inside(&mut moved);
        return tile.zero = moved.zero;
    }
    // SAFETY: the arrays are part of a state that the engine holds for the step, and are only read in it from here on.
    let there = unsafe { raw.slice::<C>(tile.start, tile.u.len()) };
    let here = core::mem::replace(&mut tile.p, there);
    inside(tile);
    tile.p = here;
}
