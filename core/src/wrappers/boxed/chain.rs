//! Chains of boxes.

use super::{Boxed, BoxedState};
use crate::engine::{
    ChainRun, Emission, OnMember, OnView, PassRange, PassStructure, Skips, StageChunk, Stages, Then, TileScratch, Walk,
    chain, chain_methods, run_own_loops,
};
use crate::needs::Needs;
use crate::part::prelude::*;
use crate::state::StateWalk;

impl<N: Needs> Transform for Vec<Boxed<N>> {
    fn as_dyn(&self) -> &dyn Transform {
        self
    }

    fn members(&self, visit: &mut dyn FnMut(&dyn Transform)) {
        self.iter().for_each(|member| visit(member));
    }

    fn skips(&self, skips: &mut Skips, place: &str) -> bool {
        chain::skips(self, skips, place)
    }
}

/// Boxes store a step's values beside their state, so that a step allocates nothing.
impl<N: Needs> Stages for Vec<Boxed<N>> {
    type Needs = N;
    type States = Vec<BoxedState>;
    type Runs = ();

    fn len(&self) -> usize {
        <[_]>::len(self)
    }

    fn shape_of(&self, stage: usize) -> PassStructure {
        self[stage].shape()
    }

    fn changed(&self, original: &Self) -> Option<&'static str> {
        let mut members = self.iter().zip(original);
        let lengths = (<[_]>::len(self) != <[_]>::len(original)).then_some("number of members");
        lengths.or_else(|| members.find_map(|(member, original)| member.changed(original)))
    }

    fn init<'c>(&self, at: &mut dyn FnMut(usize, &dyn Transform) -> InitContext<'c>) -> Result<Vec<BoxedState>> {
        self.iter().enumerate().map(|(i, member)| member.init_state(&at(i, member))).collect()
    }

    fn views<'a>(&self, states: &'a Vec<BoxedState>, _: Option<&()>, visit: &mut OnView<'_, 'a>) {
        for (i, (member, state)) in self.iter().zip(states).enumerate() {
            if (**member).dyn_view(i, &*state.0, visit).is_break() {
                return;
            }
        }
    }

    // Boxes hold their values of a step in their states.
    fn new_runs(&self, states: &mut Vec<BoxedState>) {
        states.iter_mut().for_each(|state| state.0.reset());
    }

    fn in_step<'a>(&self, states: &'a mut Vec<BoxedState>, (): &mut (), visit: &mut OnMember<'_, 'a>) {
        for (i, (member, state)) in self.iter().zip(states).enumerate() {
            if (**member).dyn_in_step(i, &mut *state.0, visit).is_break() {
                return;
            }
        }
    }

    fn prepare_chunk<C: Real>(
        &self,
        stage: usize,
        states: &Vec<BoxedState>,
        (): &(),
        at: StageChunk,
        then: &mut Then<'_, C>,
    ) {
        self[stage].prepare_chunk(&states[stage], &(), at, then);
    }
}

/// A chain whose length is known at run time.
impl<N: Needs> Stage for Vec<Boxed<N>> {
    type Needs = N;
    type State = Vec<BoxedState>;
    type Run = ChainRun<()>;
    type Kernel<C: Real> = ();

    const SHAPE: PassStructure = PassStructure::elementwise(false, false);
    const FUSES: bool = false;

    chain_methods!();

    fn begin(&self, states: &mut Self::State, at: &StepContext<'_>) -> Self::Run {
        chain::begin(self, states, at)
    }

    fn finish(&self, states: &mut Self::State, run: Self::Run, sums: Sums<'_>, outcome: &mut Outcome) {
        chain::finish(self, states, run, sums, outcome);
    }

    fn check(&self, state: &Self::State, at: &StepContext<'_>) -> Result<()> {
        if <[_]>::len(self) != state.len() {
            let problem = format!("the state has {} members; make one with `init`", state.len());
            return Err(Error::state(self.describe(), problem));
        }
        self.iter().zip(state).try_for_each(|(member, state)| member.check(state, at))
    }

    fn pass(&self, state: &Self::State, run: &Self::Run, walk: &Walk<'_>, scratch: &mut TileScratch) {
        match (&self[..], &state[..]) {
            ([member], [state]) => member.pass(state, &(), walk, scratch),
            _ => run_own_loops(self, (state, run), walk, scratch),
        }
    }

    fn prepare_chunk<C: Real>(&self, state: &Self::State, run: &Self::Run, at: StageChunk, then: &mut Then<'_, C>) {
        chain::prepare_chunk(self, state, run, at, then);
    }

    fn kernel<C: Real>(&self, _: &Self::State, _: &Self::Run, _: usize) {}
}
