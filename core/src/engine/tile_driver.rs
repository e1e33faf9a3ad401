//! The tile driver: each stage looks up its arrays and selects its loop once per chunk, then transforms tiles.
//!
//! Looking up arrays costs about as much as the loop over a tile.

use core::marker::PhantomData;
use core::ops::Range;

use super::fused::{To, list_slots, local_range, loop_on_tile};
use super::passes;
use super::simd::SimdLevel;
use super::slots::SlotList;
use super::stage_chunk::{Next, OnTile, StageChunk, Then};
use super::stored::Arrays;
use super::sums::{Added, MAX_SUMS};
use super::{PassStructure, Stage, Tile};
use crate::element::{Contribution, Real};

fn skip<C: Real>(then: &mut Then<'_, C>) {
    then(&mut |_| {});
}

pub(crate) trait Members<C: Real> {
    /// The number of members that run.
    fn len(&self) -> usize;
    /// Returns true if all members run.
    fn is_whole(&self) -> bool;
    fn shape(&self, member: usize) -> PassStructure;
    /// As [`Stage::prepare_chunk`].
    fn prepare_chunk(&self, member: usize, at: StageChunk, then: &mut Then<'_, C>);
}

pub(crate) fn prepare_members<C: Real>(members: &dyn Members<C>, at: StageChunk, then: &mut Then<'_, C>) {
    let at = if members.is_whole() { at } else { at.followed() };
    match members.len() {
        0 => then(&mut |_| {}),
        many => {
            let here = if many > 1 { at.followed() } else { at };
            members
                .prepare_chunk(0, here, &mut |first| prepare_rest(members, 1, at.after(members.shape(0)), first, then));
        }
    }
}

fn prepare_rest<C: Real>(
    members: &dyn Members<C>,
    next: usize,
    at: StageChunk,
    before: &mut OnTile<'_, C>,
    then: &mut Then<'_, C>,
) {
    if next == members.len() {
        return then(before);
    }
    let here = if next + 1 < members.len() { at.followed() } else { at };
    members.prepare_chunk(next, here, &mut |own| {
        let mut both = |tile: &mut Tile<'_, C>| {
            before(tile);
            own(tile);
        };
        prepare_rest(members, next + 1, at.after(members.shape(next)), &mut both, then);
    });
}

type StateAndRun<'a, S> = (&'a <S as Stage>::State, &'a <S as Stage>::Run);

type LoopFn<S, C> = fn(&S, StateAndRun<'_, S>, StageChunk, &mut Then<'_, C>);

/// The loops of a stage over a chunk, selected by constants of function type: rustc instantiates both sides of an `if
/// const`.
struct SelectedLoop<S, C>(PhantomData<(S, C)>);

impl<S: Stage, C: Real> SelectedLoop<S, C> {
    /// A single part is seldom last in a chain, and has no loop that adds.
    const LOOP: LoopFn<S, C> = if C::RECORDS { record::<S, C> } else { one_loop::<S, C, false> };
    /// `None` when recording, so that instantiations do not multiply.
    const CHAIN: Option<LoopFn<S, C>> =
        if by_one_loop::<S>() && !C::RECORDS { Some(one_loop::<S, C, true>) } else { None };
}

/// Returns true if a fusing stage runs one loop. Stages with leaf statistics and reductions fuse only in whole passes:
/// boxed, each would need a loop per pass range, ten for `adafactor`.
pub(super) const fn by_one_loop<S: Stage>() -> bool {
    S::FUSES && (S::SHAPE.reads_updates == 0 || S::SHAPE.sums == 0)
}

/// Runs a stage that is one loop for this leaf and step.
pub(crate) fn fused<S: Stage, C: Real>(
    stage: &S,
    state_and_run: StateAndRun<'_, S>,
    at: StageChunk,
    then: &mut Then<'_, C>,
) {
    SelectedLoop::<S, C>::LOOP(stage, state_and_run, at, then);
}

/// Returns the loop of a stage made of others, if they run as one loop for this leaf and step.
pub(super) fn fused_loop<S: Stage, C: Real>(
    stage: &S,
    (state, run): StateAndRun<'_, S>,
    leaf: usize,
) -> Option<LoopFn<S, C>> {
    if S::FUSES_ALWAYS || stage.fuses_now(state, run, leaf) { SelectedLoop::<S, C>::CHAIN } else { None }
}

/// If it `ADDS`, it adds its updates to the parameters in its loop, as the last member of a chain.
#[inline(never)]
fn one_loop<S: Stage, C: Real, const ADDS: bool>(
    stage: &S,
    (state, run): StateAndRun<'_, S>,
    at: StageChunk,
    then: &mut Then<'_, C>,
) {
    let Some(local) = local_range(S::SHAPE.barriers, at.place.at, at.range) else { return skip(then) };
    // Filled in place: the list spans several cache lines.
    let (kernel, mut list) = (stage.kernel::<C>(state, run, at.leaf), SlotList::new());
    list_slots(&mut list, stage, state, at.leaf);
    let dropping = if matches!(at.next, Next::Dropped) { passes::dropping::<S, C>(local) } else { None };
    let (pass, to) = match (dropping, passes::last::<S, C, ADDS>(local), at.next) {
        (Some(dropping), ..) => (dropping, To::Discard),
        (_, Some(last), Next::Added(params)) => (last, To::Params(params)),
        _ => (passes::map::<S, C>(local), To::Updates),
    };
    // Repeated work must not be reduced twice.
    let reduces = S::SHAPE.reduces_in(local.to) && at.range.to <= at.place.at + S::SHAPE.barriers;
    let sums = if reduces { S::SHAPE.sums } else { 0 };
    loop_on_tiles(&list, to, at.place.sum..at.place.sum + sums, &|simd, arrays| pass(simd, &kernel, arrays), then);
}

/// Not inlined: shared by all stages.
#[inline(never)]
fn loop_on_tiles<C: Real>(
    list: &SlotList<'_>,
    to: To,
    sums: Range<usize>,
    run: &dyn Fn(SimdLevel, &Arrays<'_>) -> Added,
    then: &mut Then<'_, C>,
) {
    then(&mut |tile| {
        let simd = tile.simd;
        let added = loop_on_tile(list, to, tile, None, &mut |arrays| run(simd, arrays));
        if sums.is_empty() {
            return;
        }
        tile.sums[sums.clone()].iter_mut().zip(&added).for_each(|(sum, added)| *sum += added);
    });
}

/// As [`one_loop`] for a recorded element.
#[inline(never)]
fn record<S: Stage, C: Real>(stage: &S, (state, run): StateAndRun<'_, S>, at: StageChunk, then: &mut Then<'_, C>) {
    let Some(local) = local_range(S::SHAPE.barriers, at.place.at, at.range) else { return skip(then) };
    let (kernel, mut list) = (stage.kernel::<C>(state, run, at.leaf), SlotList::new());
    list_slots(&mut list, stage, state, at.leaf);
    record_element(S::SHAPE, &list, at, then, &|slots, (u, p), terms| {
        S::apply::<C>(&kernel, 0, local, slots, u, p, terms)
    });
}

/// Applies a stage to the state, the update and the parameter of one element.
type ApplyFn<'a, C> = &'a dyn Fn(&mut [C], (C, C), &mut [Contribution<C>; MAX_SUMS]) -> C;

/// Not inlined: shared by all stages.
#[inline(never)]
fn record_element<C: Real>(
    shape: PassStructure,
    list: &SlotList<'_>,
    StageChunk { place, range, .. }: StageChunk,
    then: &mut Then<'_, C>,
    apply: ApplyFn<'_, C>,
) {
    let sums = if range.to <= place.at + shape.barriers { shape.sums } else { 0 };
    then(&mut |tile| {
        let p = tile.p[0];
        tile.record(&list.recorded_array()[..list.len()], place.sum..place.sum + sums, &|slots, u, terms| {
            let mut all = [Contribution::default(); MAX_SUMS];
            let u = apply(slots, (u, p), &mut all);
            terms.copy_from_slice(&all[..terms.len()]);
            u
        });
    });
}
