//! One pass of a chain over chunks, compiled per chain. `walk` has the part that all chains share.
#![allow(unsafe_code, reason = "disjoint slices of raw leaves on many threads; see `memory`")]

use super::chunks::Chunk;
use super::fused::with_list;
use super::passes::{self, PassFn, Passes};
use super::prefetch::{DISTANCE, Prefetch};
use super::simd::SimdLevel;
use super::slots::RawSlots;
use super::stage_chunk::Next;
use super::stored::{Arrays, is_stored};
use super::tile::{SHORT, TILE, TileBuffers, TileScratch};
use super::walk::Walk;
use super::{SlotList, Stage, StageChunk, StageOffset, Tile, fused};
use crate::element::{DType, Real};
use crate::memory::RawSlice;

pub(crate) struct Pass<'a, T: Stage> {
    pub(super) transformation: &'a T,
    pub(super) state: &'a T::State,
    pub(super) run: &'a T::Run,
    pub(super) walk: &'a Walk<'a>,
    /// Properties of every chunk: the pass writes parameters; it may run as one loop.
    adds_to_params: bool,
    fuses: bool,
}

pub(crate) fn run_own_loops<T: Stage>(
    transformation: &T,
    (state, run): (&T::State, &T::Run),
    walk: &Walk<'_>,
    scratch: &mut TileScratch,
) {
    Pass::of(transformation, (state, run), walk).run(scratch);
}

type OneLoopFn<P, C> = fn(&P, &Chunk, &mut [f64], &mut TileBuffers<C>) -> bool;
type TileLoopFn<P, C> = fn(&P, &Chunk, &mut [f64], &mut TileBuffers<C>);

impl<'a, T: Stage> Pass<'a, T> {
    pub(super) fn of(transformation: &'a T, (state, run): (&'a T::State, &'a T::Run), walk: &'a Walk<'a>) -> Self {
        let adds_to_params = walk.writes_params();
        let fuses = adds_to_params || drops_in_loops::<T>() && T::SHAPE.drops(walk.range.to) && !walk.ends;
        Pass { transformation, state, run, walk, adds_to_params, fuses: T::FUSES && fuses }
    }
}

/// Returns true if passes that drop updates also run as loops of the whole chain. Chains that fuse only in some steps
/// use their members' loops, which exist anyway; not chains with leaf statistics, whose updates would then go through
/// memory.
const fn drops_in_loops<T: Stage>() -> bool {
    T::FUSES && (T::FUSES_ALWAYS || T::SHAPE.reads_updates != 0)
}

/// Arguments: start and length in the leaf, start in the source, state arrays.
type OnStep<'r> = dyn FnMut((usize, usize), usize, &RawSlots) + 'r;

/// Runs a loop over steps of a chunk: tiles if it reduces, because sums are kept by tile; shorter steps if it only
/// converts arrays. Not inlined: shared by all chains.
#[inline(never)]
fn in_steps<C: Real>(
    chunk: &Chunk,
    (source, from, p): (RawSlice, usize, RawSlice),
    (list, stored): (&SlotList<'_>, &dyn Fn(DType) -> bool),
    (converts, reduces): (bool, bool),
    (simd, buffers): (SimdLevel, &mut TileBuffers<C>),
    run: &mut OnStep<'_>,
) {
    let step = if reduces { TILE } else { SHORT };
    let prefetcher = &mut Prefetch::new(chunk.len >= 2 * step);
    for done in (0..chunk.len).step_by(step) {
        let (start, from, n) = (chunk.start + done, from + done, step.min(chunk.len - done));
        if !converts {
            run((start, n), from, list.slots());
            continue;
        }
        if prefetcher.is_first() {
            list.read(start, n, prefetcher);
            [source.addresses(from, n), p.addresses(start, n)].into_iter().for_each(|memory| prefetcher.reads(memory));
        }
        prefetcher.prefetch_share();
        with_list(list, start, n, stored, (simd, buffers.all()), &mut |slots| run((start, n), from, slots));
        prefetcher.next_tile(chunk.len - done >= 3 * step);
    }
}

impl<T: Stage> Pass<'_, T> {
    fn run(&self, scratch: &mut TileScratch) {
        self.walk.run(&|number, chunk, scratch| self.chunk(number, chunk, scratch), scratch);
    }

    fn chunk(&self, number: usize, chunk: &Chunk, scratch: &mut TileScratch) {
        // SAFETY: each chunk has its own sums, and a pass runs each chunk once, in one task.
        let sums = unsafe { self.walk.sums.slice_mut(number * self.walk.shape.sums, self.walk.shape.sums) };
        match chunk.dtype {
            DType::F64 => self.chunk_in::<f64>(chunk, sums, &mut scratch.double),
            _ => self.chunk_in::<f32>(chunk, sums, &mut scratch.single),
        }
    }

    fn chunk_in<C: Real>(&self, chunk: &Chunk, sums: &mut [f64], scratch: &mut TileBuffers<C>) {
        // Constants of function type instantiate loops only where they can run; see `passes`.
        let run_one_loop: Option<OneLoopFn<Self, C>> = const { if T::FUSES { Some(Self::run_one_loop) } else { None } };
        if self.fuses
            && let Some(run_one_loop) = run_one_loop
            && run_one_loop(self, chunk, sums, scratch)
        {
            return;
        }
        let by_tiles: TileLoopFn<Self, C> = const { if T::FUSES_ALWAYS { Self::as_chain } else { Self::as_stage } };
        by_tiles(self, chunk, sums, scratch);
    }

    /// Runs a chunk by one loop if it can access the arrays: at once, or by tiles if it reduces or converts. Returns
    /// true if so.
    fn run_one_loop<C: Real>(&self, chunk: &Chunk, sums: &mut [f64], buffers: &mut TileBuffers<C>) -> bool {
        let (t, leaf, pass, simd) = (self.transformation, chunk.leaf, self.walk.range.to, self.walk.simd);
        let Some((source, from)) = self.walk.dense(chunk) else { return false };
        let (p, stored) = (self.walk.params[leaf].data, |dtype| is_stored::<C>(dtype, simd));
        if !stored(source.dtype()) || !stored(p.dtype()) || !t.fuses_now(self.state, self.run, leaf) {
            return false;
        }
        let mut list = SlotList::new();
        if Passes::<T, C, true>::GIVEN[pass] {
            fused::list_slots(&mut list, t, self.state, leaf);
        }
        if !list.is_whole() {
            return false;
        }
        let kernel = t.kernel::<C>(self.state, self.run, leaf);
        let drops: Option<fn(usize) -> PassFn<T, C>> =
            const { if drops_in_loops::<T>() { Some(passes::own::<T, C, true>) } else { None } };
        let run = match drops.filter(|_| !self.adds_to_params) {
            Some(own) => own(pass),
            None => Passes::<T, C, true>::LAST,
        };
        let (p, to) = if self.adds_to_params { (RawSlice::EMPTY, p) } else { (p, RawSlice::EMPTY) };
        let run = &mut |place: (usize, usize), from: usize, slots: &RawSlots| {
            let from = (source, from, source.end_of(from, 0) + DISTANCE);
            // SAFETY: leaves are borrowed for the step, the engine holds the state exclusively, and a pass runs each
            // chunk once, in one task. Gradients, parameters, state and stored updates are separate memory.
            let arrays = unsafe { Arrays::new(place, from, (p, to), slots) };
            let added = run(simd, &kernel, &arrays);
            if const { T::SHAPE.sums > 0 } {
                fused::add(&T::SHAPE, &added, StageOffset::default(), sums);
            }
        };
        let (converts, reduces) = (!list.is_stored(stored), T::SHAPE.reduces_in(pass));
        if !converts && !reduces {
            run((chunk.start, chunk.len), from, list.slots());
        } else {
            let p = if self.adds_to_params { to } else { p };
            in_steps(chunk, (source, from, p), (&list, &stored), (converts, reduces), (simd, buffers), run);
        }
        true
    }

    fn as_chain<C: Real>(&self, chunk: &Chunk, sums: &mut [f64], scratch: &mut TileBuffers<C>) {
        let (held, pass) = ((self.state, self.run), self.walk.range.to);
        let chain = &mut |tile: &mut Tile<'_, C>| fused::chain_tile(self.transformation, held, pass, tile);
        self.walk.tiles(chunk, chain, (sums, scratch.all()));
    }

    /// Runs a chunk by tiles, each by the loops of the members.
    fn as_stage<C: Real>(&self, chunk: &Chunk, sums: &mut [f64], scratch: &mut TileBuffers<C>) {
        let (place, range) = (StageOffset::default(), self.walk.range);
        let params = &self.walk.params[chunk.leaf];
        let next = match () {
            () if self.walk.shape.drops(range.to) => Next::Dropped,
            () if self.adds_to_params && params.is_in_memory_order(C::DTYPE) => Next::Added(params.data),
            () => Next::Read,
        };
        let at = StageChunk { place, range, leaf: chunk.leaf, next };
        self.transformation.prepare_chunk(self.state, self.run, at, &mut |part| {
            self.walk.tiles(chunk, part, (&mut *sums, scratch.all()));
        });
    }
}
