//! The inner transformation's step context, and the wrapper's emission.

use super::super::super::leaf::is_among;
use super::super::super::{Emission, Stage, StepContext, Transform};
use super::arithmetic::Loops;
use super::run::{AroundRun, Inner, StateOf, is_on};
use super::{Decision, OutsideMask, Wrapper};

/// Records the leaves without an update, as far as decided; `before` are those without an input.
pub(super) fn record_resting<P: Wrapper, O: Loops<P>>(
    part: &P,
    state: &mut StateOf<P>,
    run: &mut AroundRun<<Inner<P> as Stage>::Run>,
    before: &[bool],
) {
    run.no_inner_update = inner_emission(part, state, run).is_nothing();
    let mut resting = core::mem::take(&mut state.resting);
    resting.clear();
    if emission::<P, O>(part, state, run) == Emission::Partly {
        let inside = part.current_inner(&state.memory).resting(&state.inner);
        let rests = |leaf| is_on(part, state, leaf) && (run.no_inner_update || is_among(inside, leaf));
        resting.extend((0..state.leaves).map(|leaf| is_among(before, leaf) || rests(leaf)));
    }
    state.resting = resting;
}

/// Returns the inner emission on the wrapper's leaves.
fn inner_emission<P: Wrapper>(part: &P, state: &StateOf<P>, run: &AroundRun<<Inner<P> as Stage>::Run>) -> Emission {
    match (run.decision, &run.inner) {
        (None, _) => Emission::Undecided,
        (Some(Decision::Hold | Decision::Skip), _) => Emission::Nothing(0),
        (_, Some(inner)) if !P::RUNS.estimates => part.current_inner(&state.memory).emission(&state.inner, inner),
        _ => Emission::Updates,
    }
}

pub(super) fn emission<P: Wrapper, O: Loops<P>>(
    part: &P,
    state: &StateOf<P>,
    run: &AroundRun<<Inner<P> as Stage>::Run>,
) -> Emission {
    // Leaves outside the mask have updates if their gradients pass through.
    let is_part = P::RUNS.masked && part.outside_mask() == OutsideMask::Pass && state.others;
    let rewrites =
        run.decision == Some(Decision::Run) && (O::ELEMENTS.after || O::REDUCES.waits) && !O::ELEMENTS.keeps_zeros;
    match inner_emission(part, state, run).after(P::RUNS.reduces_gradients as usize) {
        Emission::Nothing(_) if is_part => Emission::Partly,
        Emission::Nothing(_) if O::ELEMENTS.completes && run.inner.is_some() => {
            Emission::Nothing(P::RUNS.reduces_gradients as usize + part.inner().shape().barriers)
        }
        Emission::Zeros(_) if is_part || rewrites => Emission::Updates,
        emission => emission,
    }
}

pub(super) fn inner_step_context<'a, P: Wrapper, O: Loops<P>>(
    part: &P,
    memory: &'a P::Memory,
    decision: Decision,
    at: &StepContext<'a>,
) -> StepContext<'a> {
    let at = if decision == Decision::Run { part.inner_context(memory, at) } else { *at }
        .with_quantization(part.quantization(memory));
    let at = StepContext { in_full: at.in_full || O::ELEMENTS.params_slot.is_some(), ..at };
    if P::RUNS.rests { StepContext { resting: part.resting(memory), by_leaf: true, ..at } } else { at }
}
