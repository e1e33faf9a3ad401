//! Ordered stages: a chain runs them in sequence, a partition side by side.

use core::fmt::Debug;
use core::ops::ControlFlow::{self, Break, Continue};

use super::erased::{InStep, OnMember, OnView, View};
use super::leaf::is_among;
use super::stage_chunk::{StageChunk, Then};
use super::tile_driver::{Members, prepare_members};
use super::transform::{Transform, members_skip};
use super::{
    Emission, HoldsBack, InitContext, Outcome, PassRange, PassStructure, Skips, Stage, StepContext, Sums, WholeTree,
    allows_absent,
};
use crate::element::Real;
use crate::error::Result;
use crate::needs::Needs;
use crate::state::{State, StateWalk};

/// Ordered stages: a tuple, or a `Vec` of boxes.
pub trait Stages: Transform + Clone + Debug {
    /// As [`Stage::Needs`](super::Stage::Needs), for all stages together.
    type Needs: Needs;
    /// The states of the stages.
    type States: State;
    /// The values that each stage computes for a step.
    type Runs: Default + Send + Sync;

    fn len(&self) -> usize;

    /// Returns barriers and reductions of one stage.
    fn shape_of(&self, stage: usize) -> PassStructure;

    /// As [`Stage::changed`](super::Stage::changed).
    fn changed(&self, original: &Self) -> Option<&'static str>;

    /// Makes the state of each stage, in the context that `at` returns.
    ///
    /// # Errors
    ///
    /// If a stage does not fit the parameters.
    fn init<'c>(&self, at: &mut dyn FnMut(usize, &dyn Transform) -> InitContext<'c>) -> Result<Self::States>;

    /// Returns the values of a step that no stage has begun.
    fn new_runs(&self, states: &mut Self::States) -> Self::Runs {
        let _ = states;
        Self::Runs::default()
    }

    /// Calls `visit` with each stage and its state.
    fn views<'a>(&self, states: &'a Self::States, runs: Option<&Self::Runs>, visit: &mut OnView<'_, 'a>);

    /// Calls `visit` with each stage in a step.
    fn in_step<'a>(&self, states: &'a mut Self::States, runs: &mut Self::Runs, visit: &mut OnMember<'_, 'a>);

    /// As [`Stage::prepare_chunk`](super::Stage::prepare_chunk), of one stage.
    fn prepare_chunk<C: Real>(
        &self,
        stage: usize,
        states: &Self::States,
        runs: &Self::Runs,
        at: StageChunk,
        then: &mut Then<'_, C>,
    );
}

/// The values of a step that the members of a chain have computed so far.
#[derive(Debug, Default)]
pub struct ChainRun<R> {
    pub(crate) members: R,
    pub(super) begun: usize,
    /// True if a member emitted updates for some leaves only; the other leaves rest in later members.
    pub(super) partly: bool,
}

pub(crate) fn skips(chain: &dyn Transform, skips: &mut Skips, place: &str) -> bool {
    allows_absent(chain, skips, place) || members_skip(chain, skips, &|i| format!("{place}.chain[{i}]"))
}

/// Returns the leaves that rest after a member: its own, which include `before`, or else `before`.
fn resting_from<'a>(before: &'a [bool], member: &'a [bool]) -> &'a [bool] {
    if member.is_empty() { before } else { member }
}

/// Returns true if leaves may rest after this member in some steps only.
fn rests_by_leaf(chain: &dyn Transform, member: &dyn Transform) -> bool {
    member.holds_back() == HoldsBack::Some && !chain.shape().joins
}

// The closures below come from functions that are not generic over the chain: rustc compiles a closure behind `dyn` for
// each type that its function is generic over.

/// Returns the context of each member's `init`.
fn contexts<'c>(chain: &dyn Transform, at: &InitContext<'c>) -> impl FnMut(usize, &dyn Transform) -> InitContext<'c> {
    let mut next = *at;
    move |_, member| {
        let at = next;
        next.by_leaf |= rests_by_leaf(chain, member);
        at
    }
}

pub(crate) fn init<S: Stages>(chain: &S, at: &InitContext<'_>) -> Result<S::States> {
    chain.init(&mut contexts(chain, at))
}

/// The context of a step for the members of a chain, copied when a member changes it for those after it.
struct MemberContext<'c, 'a> {
    chain: &'c StepContext<'a>,
    changed: Option<StepContext<'a>>,
}

impl<'c, 'a> MemberContext<'c, 'a> {
    fn new(chain: &'c StepContext<'a>) -> Self {
        MemberContext { chain, changed: None }
    }

    fn get(&self) -> &StepContext<'a> {
        self.changed.as_ref().unwrap_or(self.chain)
    }

    fn change(&mut self) -> &mut StepContext<'a> {
        self.changed.get_or_insert(*self.chain)
    }
}

pub(crate) fn begin<S: Stages>(chain: &S, states: &mut S::States, at: &StepContext<'_>) -> ChainRun<S::Runs> {
    let mut run = ChainRun { members: chain.new_runs(states), begun: 0, partly: false };
    begin_reached(chain, states, &mut run, at);
    run
}

/// Begins members in order, up to the first that emits nothing or has not decided; keeps those that have begun.
fn begin_reached<S: Stages>(
    chain: &S,
    states: &mut S::States,
    ChainRun { members, begun, partly }: &mut ChainRun<S::Runs>,
    at: &StepContext<'_>,
) {
    chain.in_step(states, members, &mut begins(chain, at, begun, partly));
}

fn begins<'a>(
    chain: &dyn Transform,
    at: &StepContext<'a>,
    begun: &mut usize,
    partly: &mut bool,
) -> impl FnMut(usize, &mut dyn InStep<'a>) -> ControlFlow<()> {
    let mut at = MemberContext::new(at);
    move |i, member| {
        *begun = i + 1;
        member.begin(at.get());
        let Some(emission) = member.emission().filter(|emission| emission.reaches_next()) else { return Break(()) };
        if rests_by_leaf(chain, member.transform()) {
            at.change().by_leaf = true;
        }
        // A chain that joins leaves runs on all of them.
        if emission == Emission::Partly && !chain.shape().joins {
            *partly = true;
            let before = at.get().resting;
            at.change().resting = resting_from(before, member.resting());
        }
        Continue(())
    }
}

pub(crate) fn barrier<S: Stages + Stage>(
    chain: &S,
    states: &mut S::States,
    run: &mut ChainRun<S::Runs>,
    outer: &StepContext<'_>,
    index: usize,
    sums: Sums<'_>,
    tree: &mut WholeTree<'_>,
) {
    chain.in_step(states, &mut run.members, &mut handles_barrier(chain, run.partly, outer, index, sums, tree));
    if !S::ALWAYS_EMITS {
        begin_reached(chain, states, run, outer);
    }
}

fn handles_barrier<'a>(
    chain: &dyn Transform,
    partly: bool,
    outer: &StepContext<'a>,
    mut index: usize,
    mut sums: Sums<'a>,
    tree: &mut WholeTree<'_>,
) -> impl FnMut(usize, &mut dyn InStep<'a>) -> ControlFlow<()> {
    let mut at = MemberContext::new(outer);
    move |_, member| {
        let shape = member.transform().shape();
        if index < shape.barriers {
            member.barrier(at.get(), index, sums, tree);
            return Break(());
        }
        index -= shape.barriers;
        sums = sums.skip(shape.sums);
        if rests_by_leaf(chain, member.transform()) {
            at.change().by_leaf = true;
        }
        if partly {
            sums.resting = resting_from(at.get().resting, member.resting());
            at.change().resting = sums.resting;
        }
        Continue(())
    }
}

pub(crate) fn finish<S: Stages>(
    chain: &S,
    states: &mut S::States,
    mut run: ChainRun<S::Runs>,
    sums: Sums<'_>,
    outcome: &mut Outcome,
) {
    chain.in_step(states, &mut run.members, &mut finishes(run.partly, sums, outcome));
}

fn finishes<'a>(
    partly: bool,
    mut sums: Sums<'a>,
    outcome: &mut Outcome,
) -> impl FnMut(usize, &mut dyn InStep<'a>) -> ControlFlow<()> {
    move |_, member| {
        if !member.finish(sums, outcome) {
            return Break(());
        }
        if sums.width > 0 {
            sums = sums.skip(member.transform().shape().sums);
        }
        if partly {
            sums.resting = resting_from(sums.resting, member.resting());
        }
        Continue(())
    }
}

pub(crate) fn emission<S: Stages>(chain: &S, states: &S::States, run: &ChainRun<S::Runs>) -> Emission {
    let (mut last, mut emission) = (0, Emission::Updates);
    chain.views(states, Some(&run.members), &mut last_emission(&mut last, &mut emission));
    match emission.end() {
        _ if run.partly && emission.reaches_next() => Emission::Partly,
        Some(_) => {
            let mut barriers = 0;
            for i in 0..last {
                barriers += chain.shape_of(i).barriers;
            }
            emission.after(barriers)
        }
        None => emission,
    }
}

fn last_emission<'a>(last: &mut usize, emission: &mut Emission) -> impl FnMut(usize, &dyn View<'a>) -> ControlFlow<()> {
    |i, member| {
        (*last, *emission) = (i, member.emission().unwrap_or(Emission::Undecided));
        if emission.reaches_next() { Continue(()) } else { Break(()) }
    }
}

pub(crate) fn resting<'a, S: Stages>(chain: &S, states: &'a S::States) -> &'a [bool] {
    let mut resting: &[bool] = &[];
    chain.views(states, None, &mut last_resting(&mut resting));
    resting
}

fn last_resting<'a>(resting: &mut &'a [bool]) -> impl FnMut(usize, &dyn View<'a>) -> ControlFlow<()> {
    |_, member| {
        *resting = resting_from(resting, member.resting());
        Continue(())
    }
}

struct OnLeaf<'a, S: Stages> {
    chain: &'a S,
    states: &'a S::States,
    runs: &'a S::Runs,
    len: usize,
}

impl<S: Stages, C: Real> Members<C> for OnLeaf<'_, S> {
    fn len(&self) -> usize {
        self.len
    }

    fn is_whole(&self) -> bool {
        self.len == self.chain.len()
    }

    fn shape(&self, member: usize) -> PassStructure {
        self.chain.shape_of(member)
    }

    fn prepare_chunk(&self, member: usize, at: StageChunk, then: &mut Then<'_, C>) {
        self.chain.prepare_chunk(member, self.states, self.runs, at, then);
    }
}

fn up_to_resting<'a>(leaf: usize, len: &mut usize) -> impl FnMut(usize, &dyn View<'a>) -> ControlFlow<()> {
    move |i, member| match is_among(member.resting(), leaf) {
        true => {
            *len = (*len).min(i + 1);
            Break(())
        }
        false => Continue(()),
    }
}

pub(crate) fn prepare_chunk<S: Stages, C: Real>(
    chain: &S,
    states: &S::States,
    run: &ChainRun<S::Runs>,
    at: StageChunk,
    then: &mut Then<'_, C>,
) {
    let mut len = run.begun;
    if run.partly {
        // A leaf that rests in a member skips all later members.
        chain.views(states, Some(&run.members), &mut up_to_resting(at.leaf, &mut len));
    }
    prepare_members(&OnLeaf { chain, states, runs: &run.members, len }, at, then);
}

pub(crate) fn state_bytes<S: Stages>(chain: &S, states: &S::States, leaf: usize, at: usize, range: PassRange) -> usize {
    let mut bytes = 0;
    chain.views(states, None, &mut all_bytes(leaf, at, range, &mut bytes));
    bytes
}

fn all_bytes<'a>(
    leaf: usize,
    mut at: usize,
    range: PassRange,
    bytes: &mut usize,
) -> impl FnMut(usize, &dyn View<'a>) -> ControlFlow<()> {
    move |_, member| {
        *bytes += member.state_bytes(leaf, at, range);
        at += member.transform().shape().barriers;
        Continue(())
    }
}

pub fn read<'a, S: Stages>(chain: &S, states: &'a S::States, walk: &mut StateWalk<'a, '_>) -> Result<()> {
    let mut done = Ok(());
    chain.views(states, None, &mut reads(walk, &mut done));
    done
}

fn reads<'a>(
    walk: &mut StateWalk<'a, '_>,
    done: &mut Result<()>,
) -> impl FnMut(usize, &dyn View<'a>) -> ControlFlow<()> {
    |i, member| {
        *done = walk.member(i, &mut |walk| member.read(walk));
        if done.is_ok() { Continue(()) } else { Break(()) }
    }
}

/// Implements the [`Stage`](super::Stage) methods that all chains share.
macro_rules! chain_methods {
    () => {
        fn changed(&self, original: &Self) -> Option<&'static str> {
            $crate::engine::Stages::changed(self, original)
        }

        fn init_state(&self, at: &InitContext<'_>) -> Result<Self::State> {
            $crate::engine::chain::init(self, at)
        }

        fn views<'a>(&self, state: &'a Self::State, run: Option<&Self::Run>, visit: &mut OnView<'_, 'a>) {
            Stages::views(self, state, run.map(|run| &run.members), visit);
        }

        fn barrier(
            &self,
            state: &mut Self::State,
            run: &mut Self::Run,
            at: &StepContext<'_>,
            index: usize,
            sums: Sums<'_>,
            tree: &mut WholeTree<'_>,
        ) {
            $crate::engine::chain::barrier(self, state, run, at, index, sums, tree);
        }

        fn emission(&self, state: &Self::State, run: &Self::Run) -> Emission {
            if const { <Self as Stage>::ALWAYS_EMITS } {
                return Emission::Updates;
            }
            $crate::engine::chain::emission(self, state, run)
        }

        fn resting<'a>(&self, state: &'a Self::State) -> &'a [bool] {
            $crate::engine::chain::resting(self, state)
        }

        fn state_bytes(&self, state: &Self::State, leaf: usize, at: usize, range: PassRange) -> usize {
            $crate::engine::chain::state_bytes(self, state, leaf, at, range)
        }

        fn read<'a>(&self, state: &'a Self::State, walk: &mut StateWalk<'a, '_>) -> Result<()> {
            $crate::engine::chain::read(self, state, walk)
        }
    };
}
pub(crate) use chain_methods;
