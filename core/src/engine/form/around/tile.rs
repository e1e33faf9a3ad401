//! Tiles of a wrapper that does not fuse.

use core::marker::PhantomData;

use super::super::super::Access;
use super::super::super::fused::with_slot_slice;
use super::super::super::simd::{Job, dispatch_chain};
use super::super::super::stage_chunk::OnTile;
use super::super::super::tile_driver::by_one_loop;
use super::super::super::{PassRange, Stage, StageChunk, StageOffset, TILE, Tile, Transform, at_point, sum_tile};
use super::super::Part;
use super::super::loops::{OnElement, each};
use super::arithmetic::{Loops, SideLoop};
use super::run::{AroundRun, Inner, StateOf, does_before, gradient_term, is_on};
use super::{Around, Decision, OutsideMask, Wrapper};
use crate::element::{Element, Real};
use crate::needs::Needs;

/// Returns true if wrapper and inner transformation are one loop: the wrapper has arithmetic, and the inner
/// transformation fuses.
pub(super) const fn is_loop<P: Wrapper + Part<Form = Around<A, O>>, A: Needs, O: Loops<P>>() -> bool {
    (O::ELEMENTS.before || O::ELEMENTS.after || O::REDUCES.waits) && by_one_loop::<P>()
}

/// Returns true if the wrapper does more than element arithmetic before and after.
pub(super) const fn weighs<P: Wrapper, O: Loops<P>>() -> bool {
    O::REDUCES.count() > 0 || O::REDUCES.combines || O::REDUCES.waits
}

/// Transforms a tile. `inside` runs the inner transformation; `None` if it does not run.
#[inline(never)]
pub(super) fn tile_of<P: Wrapper + Part<Form = Around<A, O>>, A: Needs, O: Loops<P>, C: Real>(
    part: &P,
    state: &StateOf<P>,
    run: &AroundRun<<Inner<P> as Stage>::Run>,
    StageChunk { place, range, .. }: StageChunk,
    inside: Option<&mut OnTile<'_, C>>,
    tile: &mut Tile<'_, C>,
) {
    if const { P::RUNS.reduces_gradients } && place.at == range.to {
        if const { C::RECORDS } {
            return tile.record(&[], place.sum..place.sum + 1, &|_, u, sums| {
                sums[0].sum = Some(P::gradient_term(u));
                u
            });
        }
        let (simd, u) = (tile.simd, tile.input());
        let gradient_sum = dispatch_chain(simd, GradientTerm::<P, C>(u, PhantomData));
        tile.sums[place.sum] += gradient_sum;
        return;
    }
    let begin = place.after(gradient_term::<P>());
    if !is_on(part, state, tile.leaf) {
        if part.outside_mask() == OutsideMask::Zero && range.has(begin.at) {
            tile.set_zero();
        }
        return;
    }
    let runs = matches!(run.decision, Some(Decision::Run | Decision::ArithmeticOnly));
    let own = || O::scalars::<C>(part, &state.memory, tile.leaf);
    if inside.is_none() && !runs {
        if matches!(run.decision, Some(Decision::Hold | Decision::Skip)) && range.has(begin.at) {
            // Accumulates only in the pass that ends here; later passes may repeat the arithmetic.
            if const { O::ELEMENTS.before } && run.decision == Some(Decision::Hold) && begin.at == range.to {
                each(SideLoop::<P, O, C, true, false>(own()), &state.arrays, 0, tile);
            }
            tile.set_zero();
        }
        return;
    }
    // Constants come first and alone in a condition, so that rustc instantiates no unused loop.
    if const { O::ELEMENTS.before } && runs && does_before::<P, O>(begin.at, range) {
        if const { O::ELEMENTS.rewrites[0] } {
            each(SideLoop::<P, O, C, true, true>(own()), &state.arrays, 0, tile);
        } else {
            each(SideLoop::<P, O, C, true, false>(own()), &state.arrays, 0, tile);
        }
    }
    let end = begin.after(part.current_inner(&state.memory).shape());
    let ran = inside.is_some();
    let no_inner_update: &mut OnTile<'_, C> = &mut |_| {};
    let run_inside = inside.unwrap_or(no_inner_update);
    const { assert!(!weighs::<P, O>() || O::ELEMENTS.params_slot.is_none(), "a wrapper that weighs updates has one point") }
    if const { weighs::<P, O>() } {
        if run.no_inner_update {
            return run_inside(tile);
        }
        return weighed::<P, O, C>(part, state, [begin, end], range, tile, ran, run_inside);
    }
    match const { O::ELEMENTS.params_slot } {
        Some(params_slot) => at_point(&state.arrays.all[params_slot], tile, run_inside),
        None => run_inside(tile),
    }
    if const { O::ELEMENTS.after }
        && runs
        && range.has(end.at)
        && (const { O::ELEMENTS.completes } || !run.no_inner_update)
    {
        let own = O::scalars::<C>(part, &state.memory, tile.leaf);
        if const { O::ELEMENTS.rewrites[1] } {
            each(SideLoop::<P, O, C, false, true>(own), &state.arrays, 0, tile);
        } else {
            each(SideLoop::<P, O, C, false, false>(own), &state.arrays, 0, tile);
        }
    }
}

/// Transforms a tile with reductions. The inner transformation begins at `begin`, ends at `end`, and runs if `ran`.
fn weighed<P: Wrapper, O: Loops<P>, C: Real>(
    part: &P,
    state: &StateOf<P>,
    [begin, end]: [StageOffset; 2],
    range: PassRange,
    tile: &mut Tile<'_, C>,
    ran: bool,
    run_inside: &mut OnTile<'_, C>,
) {
    let (memory, arrays) = (&state.memory, &state.arrays);
    // Reduces and copies only in the pass that ends here; later passes may repeat the arithmetic.
    if const { O::REDUCES.sums[0] > 0 } && begin.at == range.to {
        O::accumulate(part, memory, arrays, end.sum, tile);
    }
    let kept = state.gradients.all.first().filter(|_| const { O::REDUCES.combines } && ran);
    if kept.is_some() && begin.at == range.to {
        each(Keep, &state.gradients, 0, tile);
    }
    let combines = const { O::REDUCES.combines } && range.has(end.at);
    match kept {
        Some(kept) => {
            run_inside(tile);
            if combines {
                with_slot_slice(kept, (tile.leaf, tile.start, tile.u.len()), &mut |gradient| {
                    O::combine(part, memory, arrays, gradient, tile)
                });
            }
        }
        None if combines => {
            let (mut buffers, n) = ([C::zero(); TILE], tile.u.len());
            let gradient = &mut buffers[..n];
            gradient.copy_from_slice(tile.input());
            run_inside(tile);
            O::combine(part, memory, arrays, gradient, tile);
        }
        None => run_inside(tile),
    }
    if end.at == range.to {
        O::measure(part, memory, arrays, end.sum, tile);
    }
    if const { O::REDUCES.waits } && range.has(end.at + 1) {
        O::emit(part, memory, arrays, tile);
    }
}

#[derive(Clone, Copy)]
struct Keep;

impl<C: Real> OnElement<C> for Keep {
    type Slots = [C; 1];
    type Sums = [C::Wide; 0];
    const ACCESS: &'static [Access] = &[Access::Write];
    const REWRITES: bool = false;
    const READS_PARAMS: bool = false;
    #[inline(always)]
    fn apply(self, [kept]: &mut [C; 1], u: C, _: C) -> (C, [C::Wide; 0]) {
        *kept = u;
        (u, [])
    }
}

struct GradientTerm<'a, P, C>(&'a [C], PhantomData<P>);

impl<P: Wrapper, C: Real> Job for GradientTerm<'_, P, C> {
    type Output = f64;
    const IS_RUN: bool = !C::RECORDS;
    #[inline(always)]
    fn run(self) -> f64 {
        sum_tile(self.0, |u| P::gradient_term(u).as_f64())
    }
}
