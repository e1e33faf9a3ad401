//! Fused loops on one tile or one whole chunk.
#![allow(unsafe_code, reason = "state arrays are split at the chunks of their leaves; see `memory`")]

use super::convert::{load, store};
use super::passes::{self, Passes};
use super::simd::{Job, SimdLevel, dispatch_chain};
use super::slots::{RawSlots, SlotList};
use super::stored::{Arrays, Slots, no_slots};
use super::sums::{Added, NOTHING};
use super::tile::STEP;
use super::{PassRange, PassStructure, Stage, StageOffset, Tile};
use crate::element::{DType, Real};
use crate::memory::RawSlice;
use crate::state::Moments;

#[inline]
pub(super) fn list_slots<'a, S: Stage>(list: &mut SlotList<'a>, stage: &S, state: &'a S::State, leaf: usize) {
    stage.slots(state, leaf, list);
    // Makes the length a constant below.
    assert_eq!(list.len(), S::SLOTS, "a stage lists as many arrays as it has slots");
}

/// Runs a pass of a whole, always fusing chain on a tile.
pub(crate) fn chain_tile<S: Stage, C: Real>(
    stage: &S,
    (state, run): (&S::State, &S::Run),
    pass: usize,
    tile: &mut Tile<'_, C>,
) {
    let kernel = stage.kernel::<C>(state, run, tile.leaf);
    let mut list = SlotList::new();
    if Passes::<S, C, false>::GIVEN[pass] {
        list_slots(&mut list, stage, state, tile.leaf);
    }
    let (simd, own) = (tile.simd, passes::own::<S, C, false>(pass));
    let to = if S::SHAPE.drops(pass) { To::Discard } else { To::Updates };
    let added = loop_on_tile(&list, to, tile, None, &mut |arrays| own(simd, &kernel, arrays));
    if const { S::SHAPE.sums > 0 } {
        add(&S::SHAPE, &added, StageOffset::default(), tile.sums);
    }
}

#[derive(Clone, Copy)]
pub(super) enum To {
    Discard,
    Updates,
    /// Updates are added to these parameters.
    Params(RawSlice),
}

/// Runs a loop on a tile; `params` replaces the parameters. Not inlined: shared by all chains.
#[inline(never)]
pub(super) fn loop_on_tile<C: Real>(
    list: &SlotList<'_>,
    to: To,
    tile: &mut Tile<'_, C>,
    params: Option<&[C]>,
    run: &mut dyn FnMut(&Arrays<'_>) -> Added,
) -> Added {
    let (start, n, simd) = (tile.start, tile.u.len(), tile.simd);
    let (mut prefetch_address, mut p) = (0, RawSlice::of(params.unwrap_or(tile.p)));
    if let To::Params(_) = to {
        (tile.added, tile.p, p, prefetch_address) = (true, &[], RawSlice::EMPTY, tile.prefetch_address);
    } else {
        tile.reads(list);
        tile.prefetch_share();
    }
    let scratch = core::mem::take(&mut tile.scratch);
    let mut added = NOTHING;
    let (from, u) = tile.input_output(matches!(to, To::Updates));
    let to = if let To::Params(params) = to { params } else { RawSlice::of_mut(u).with_first(start) };
    let (from, p) = (RawSlice::of(from), p.with_first(start));
    let mut on_slots = |slots: &RawSlots| {
        // SAFETY: the tile is borrowed, the parameters are borrowed for the step to be written, and the engine holds
        // the state exclusively. Each chunk belongs to one task and runs once in a pass, so no other task accesses
        // these elements. Updates, parameters and state arrays are separate memory.
        added = run(&unsafe { Arrays::new((start, n), (from, 0, prefetch_address), (p, to), slots) });
    };
    if list.is_stored(|dtype| dtype == C::DTYPE) {
        on_slots(list.slots());
    } else {
        with_list(list, start, n, &|dtype| dtype == C::DTYPE, (simd, &mut *scratch), &mut on_slots);
    }
    tile.scratch = scratch;
    added
}

/// Calls `f` with the listed state arrays of a tile; those not `stored` are converted to the scratch buffer and back.
/// Here and below `f` is a trait object, to compile this once and not per loop.
pub(super) fn with_list<C: Real>(
    list: &SlotList<'_>,
    start: usize,
    n: usize,
    stored: &dyn Fn(DType) -> bool,
    (simd, scratch): (SimdLevel, &mut [C]),
    f: &mut dyn FnMut(&RawSlots),
) {
    if list.is_stored(stored) {
        return f(list.slots());
    }
    let mut rooms = scratch.chunks_mut(STEP);
    let mut slots = *list.slots();
    for slot in &mut slots[..list.len()] {
        if let Some(raw) = slot.filter(|raw| !stored(raw.dtype()))
            && let Some(buffers) = rooms.next()
        {
            // SAFETY: the engine holds the state exclusively for the step and gives each chunk to one task.
            unsafe { load(simd, raw, start, &mut buffers[..n]) };
            *slot = Some(RawSlice::of_mut(&mut buffers[..n]).with_first(start));
        }
    }
    if let Some((found, which)) = list.statistics() {
        let mut filled = no_slots();
        for slice in &mut filled[which.clone()] {
            *slice = rooms.next().map_or(&mut [], |buffers| &mut buffers[..n]);
        }
        found.fill(start, &mut filled[which.clone()]);
        let filled = filled.into_iter().zip(&mut slots).skip(which.start).take(which.len());
        filled.for_each(|(slice, slot)| *slot = Some(RawSlice::of_mut(slice).with_first(start)));
    }
    f(&slots);
    for (slot, raw) in slots.iter().zip(&list.slots()[..list.len()]) {
        if let (Some(slot), Some(raw)) = (slot, raw)
            && !stored(raw.dtype())
        {
            // SAFETY: as above; `f` has returned, so nothing borrows the scratch buffer.
            unsafe { store(simd, *raw, start, slot.slice::<C>(start, n)) };
        }
    }
}

/// As [`with_list`], with slices in the compute type.
pub(crate) fn with_slices<C: Real>(
    list: &SlotList<'_>,
    start: usize,
    n: usize,
    buffers: (SimdLevel, &mut [C]),
    f: &mut dyn FnMut(Slots<'_, C>),
) {
    with_list(list, start, n, &|dtype| dtype == C::DTYPE, buffers, &mut |raw| {
        let mut slots = no_slots();
        for (slot, raw) in slots.iter_mut().zip(raw) {
            // SAFETY: as above; distinct slots are distinct arrays or distinct slices of the scratch buffer.
            *slot = raw.map_or(&mut [], |raw| unsafe { raw.slice_mut(start, n) });
        }
        f(slots);
    });
}

pub(super) fn add(shape: &PassStructure, added: &Added, place: StageOffset, sums: &mut [f64]) {
    sums[place.sum..place.sum + shape.sums].iter_mut().zip(added).for_each(|(sum, added)| *sum += added);
}

/// Returns the pass range local to a stage with `barriers` barriers; `None` if it is empty.
pub(super) fn local_range(barriers: usize, at: usize, range: PassRange) -> Option<PassRange> {
    let to = range.to.checked_sub(at)?.min(barriers);
    let from = range.from.saturating_sub(at);
    (from <= to).then_some(PassRange { from, to, ..range })
}

/// Work on a tile and its one state array.
pub(crate) trait SlotJob<C>: Copy {
    /// Must be `#[inline(always)]`, to be compiled for the caller's SIMD level.
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

/// Calls `f` with a tile's slice of a state array, if it has the compute type.
pub(crate) fn with_slot_slice<C: Real>(
    moments: &Moments,
    (leaf, start, n): (usize, usize, usize),
    f: &mut dyn FnMut(&[C]),
) {
    let Some(raw) = moments.raw(leaf).filter(|raw| raw.dtype() == C::DTYPE) else { return };
    if const { C::RECORDS } {
        return f(&[C::record(&[moments.recorded_array(leaf)], 0..0, &|slots, _| slots[0])]);
    }
    // SAFETY: the engine holds the state exclusively for the step and gives each chunk to one task.
    f(unsafe { raw.slice::<C>(start, n) });
}

/// Runs a job with a state array of any dtype.
pub(crate) fn slot_tile<C: Real, J: SlotJob<C>>(moments: &Moments, tile: &mut Tile<'_, C>, job: J) {
    let Some(raw) = moments.raw(tile.leaf) else { return };
    if const { C::RECORDS } {
        let p = tile.p[0];
        return tile.record(&[moments.recorded_array(tile.leaf)], 0..0, &|slot, u, _| {
            let mut u = [u];
            job.run(&mut u, &[p], slot);
            u[0]
        });
    }
    let (start, simd, n) = (tile.start, tile.simd, tile.u.len());
    tile.materialize();
    if raw.dtype() == C::DTYPE {
        // SAFETY: the engine holds the state exclusively for the step and gives each chunk to one task.
        let slot = unsafe { raw.slice_mut::<C>(start, n) };
        dispatch_chain(simd, OnSlot { job, u: tile.u, p: tile.p, slot });
    } else {
        let slot = &mut tile.scratch[..n];
        // SAFETY: as above.
        unsafe { load(simd, raw, start, slot) };
        dispatch_chain(simd, OnSlot { job, u: tile.u, p: tile.p, slot: &mut *slot });
        // SAFETY: as above.
        unsafe { store(simd, raw, start, slot) };
    }
}

/// Runs `inside` with parameters `point`: arrays of the same shapes, in the compute type.
pub(crate) fn at_point<C: Real>(point: &Moments, tile: &mut Tile<'_, C>, inside: &mut dyn FnMut(&mut Tile<'_, C>)) {
    let Some(raw) = point.raw(tile.leaf).filter(|raw| raw.dtype() == C::DTYPE) else { return inside(tile) };
    if const { C::RECORDS } {
        let there = [C::record(&[point.recorded_array(tile.leaf)], 0..0, &|slots, _| slots[0])];
        tile.materialize();
        let mut moved = Tile::recorded_element(tile.leaf, tile.u, &there, tile.simd);
        inside(&mut moved);
        return tile.zero = moved.zero;
    }
    // SAFETY: the arrays belong to a state that the engine holds for the step; until the step ends they are only read.
    let there = unsafe { raw.slice::<C>(tile.start, tile.u.len()) };
    let here = core::mem::replace(&mut tile.p, there);
    inside(tile);
    tile.p = here;
}
