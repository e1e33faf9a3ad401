//! Chains of boxes.

use super::{Boxed, BoxedState};
use crate::engine::{
    Absent, Emission, HoldsBack, Members, Outline, PieceAt, Shape, Skips, Span, Spare, Then, Walk, by_own_loops,
    goes_around, in_members, is_among, resting_from, rests_by_leaf,
};
use crate::needs::{Level, Needs};
use crate::part::prelude::*;
use crate::recipe::Recipe;
use crate::state::StateWalk;

/// How far a chain has come in a step.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reached {
    /// How many members have begun: those that updates reach, as far as that is decided.
    members: usize,
    /// Whether a member emitted updates of some leaves only, so that the others rest in those after it.
    partly: bool,
}

impl Reached {
    /// How many members run on a leaf.
    fn on(self, states: &[BoxedState], members: &[Boxed<impl Needs>], leaf: usize) -> usize {
        let rests = |(member, state): (&Boxed<_>, &BoxedState)| is_among(member.resting(state), leaf);
        let last = if self.partly { members.iter().zip(states).position(rests) } else { None };
        last.map_or(self.members, |last| self.members.min(last + 1))
    }
}

/// The members of a chain in a step that run on a leaf.
struct InStep<'a, N> {
    members: &'a [Boxed<N>],
    states: &'a [BoxedState],
}

impl<N: Needs, C: Real> Members<C> for InStep<'_, N> {
    fn len(&self) -> usize {
        self.members.len()
    }

    fn is_whole(&self) -> bool {
        self.members.len() == self.states.len()
    }

    fn shape(&self, member: usize) -> Shape {
        self.members[member].shape()
    }

    fn in_piece(&self, member: usize, at: PieceAt, then: &mut Then<'_, C>) {
        self.members[member].in_piece(&self.states[member], &(), at, then);
    }
}

/// Begins the members that updates reach and that have not begun: those after one that is decided to emit.
fn begin_reached<N: Needs>(chain: &Vec<Boxed<N>>, states: &mut [BoxedState], run: &mut Reached, at: &StepContext<'_>) {
    let (mut at, mut states) = (*at, states);
    for (i, member) in chain.iter().enumerate() {
        let Some((state, rest)) = states.split_first_mut() else { return };
        if i == run.members {
            member.begin(state, &at);
            run.members += 1;
        }
        let emission = member.emission(state, &());
        if !emission.reaches_next() {
            return;
        }
        at.by_leaf |= rests_by_leaf(chain, member);
        // What works on several leaves together works on all of them.
        if emission == Emission::Partly && !chain.shape().joins {
            run.partly = true;
            at.resting = resting_from(at.resting, member.resting(state));
        }
        states = rest;
    }
}

/// A chain whose length is known at run time.
impl<N: Needs> Stage for Vec<Boxed<N>> {
    type Needs = N;
    type State = Vec<BoxedState>;
    type Run = Reached;
    type Kernel<C: Real> = ();

    const SHAPE: Shape = Shape::elementwise(false, false);
    const FUSES: bool = false;

    fn shape(&self) -> Shape {
        self.iter().fold(Shape::EMPTY, |shape, member| shape.then(member.shape()))
    }

    fn needs(&self) -> Level {
        self.iter().map(Stage::needs).max().unwrap_or(Level::Nothing)
    }

    fn absent(&self) -> Absent {
        self.iter().map(Stage::absent).max().unwrap_or(Absent::Rests)
    }

    fn has_windows(&self) -> bool {
        self.iter().any(Stage::has_windows)
    }

    fn skips(&self, skips: &mut Skips, place: &str) -> bool {
        if goes_around(self, skips, place) {
            return true;
        }
        let members = self.iter().enumerate();
        members.fold(true, |all, (i, member)| member.skips(skips, &format!("{place}.chain[{i}]")) && all)
    }

    fn validate(&self) -> Result<()> {
        Error::all(self.iter().map(Stage::validate))
    }

    fn changed(&self, made: &Self) -> Option<&'static str> {
        let mut members = self.iter().zip(made);
        let lengths = (self.len() != made.len()).then_some("number of members");
        lengths.or_else(|| members.find_map(|(member, made)| member.changed(made)))
    }

    fn init_state(&self, at: &InitContext<'_>) -> Result<Self::State> {
        let mut at = *at;
        let init = |member: &Boxed<N>| {
            let state = member.init_state(&at)?;
            at.by_leaf |= rests_by_leaf(self, member);
            Ok(state)
        };
        self.iter().map(init).collect()
    }

    fn check(&self, state: &Self::State, at: &StepContext<'_>) -> Result<()> {
        if self.len() != state.len() {
            let problem = format!("the state is of {} members; make one with `init`", state.len());
            return Err(Error::state(self.describe(), problem));
        }
        self.iter().zip(state).try_for_each(|(member, state)| member.check(state, at))
    }

    fn begin(&self, state: &mut Self::State, at: &StepContext<'_>) -> Reached {
        let mut run = Reached::default();
        begin_reached(self, state, &mut run, at);
        run
    }

    fn barrier(
        &self,
        state: &mut Self::State,
        run: &mut Reached,
        around: &StepContext<'_>,
        index: usize,
        sums: Sums<'_>,
        tree: &mut WholeTree<'_>,
    ) {
        let (mut index, mut sums) = (index, sums);
        let (mut at, mut states) = (*around, &mut state[..]);
        for (i, member) in self.iter().enumerate() {
            let Some((state, rest)) = states.split_first_mut() else { break };
            let shape = member.shape();
            if index < shape.barriers {
                if i < run.members {
                    member.barrier(state, &mut (), &at, index, sums, tree);
                }
                break;
            }
            index -= shape.barriers;
            sums = sums.skip(shape.sums);
            at.by_leaf |= rests_by_leaf(self, member);
            if run.partly {
                at.resting = resting_from(at.resting, member.resting(state));
                sums.resting = at.resting;
            }
            states = rest;
        }
        begin_reached(self, state, run, around);
    }

    fn finish(&self, state: &mut Self::State, run: Reached, sums: Sums<'_>, outcome: &mut Outcome) {
        let (mut states, mut sums) = (&mut state[..], sums);
        for member in self.iter().take(run.members) {
            let Some((state, rest)) = states.split_first_mut() else { return };
            member.finish(state, (), sums, outcome);
            sums = sums.skip(member.shape().sums);
            if run.partly {
                sums.resting = resting_from(sums.resting, member.resting(state));
            }
            states = rest;
        }
    }

    fn emission(&self, state: &Self::State, run: &Reached) -> Emission {
        let (mut before, mut emission) = (0, Emission::Updates);
        for (member, state) in self.iter().zip(state).take(run.members) {
            emission = member.emission(state, &()).after(before);
            before += member.shape().barriers;
        }
        match run.partly && emission.reaches_next() {
            true => Emission::Partly,
            false => emission,
        }
    }

    fn resting<'a>(&self, state: &'a Self::State) -> &'a [bool] {
        let members = self.iter().zip(state);
        members.fold(&[], |resting, (member, state)| resting_from(resting, member.resting(state)))
    }

    fn holds_back(&self) -> HoldsBack {
        self.iter().map(Stage::holds_back).max().unwrap_or(HoldsBack::Never)
    }

    fn pass(&self, state: &Self::State, run: &Reached, walk: &Walk<'_>, spare: &mut Spare) {
        match (&self[..], &state[..]) {
            ([member], [state]) => member.pass(state, &(), walk, spare),
            _ => by_own_loops(self, (state, run), walk, spare),
        }
    }

    fn in_piece<C: Real>(&self, state: &Self::State, run: &Reached, at: PieceAt, then: &mut Then<'_, C>) {
        let reached = run.on(state, self, at.leaf);
        in_members(&InStep { members: &self[..reached], states: state }, at, then);
    }

    fn kernel<C: Real>(&self, _: &Self::State, _: &Reached, _: usize) {}

    fn state_bytes(&self, state: &Self::State, leaf: usize, mut at: usize, span: Span) -> usize {
        let mut bytes = 0;
        for (member, state) in self.iter().zip(state) {
            bytes += member.state_bytes(state, leaf, at, span);
            at += member.shape().barriers;
        }
        bytes
    }

    fn unused(&self, state: &Self::State, report: &mut dyn FnMut(&str, bool)) {
        self.iter().zip(state).for_each(|(member, state)| member.unused(state, report));
    }

    fn read<'a>(&self, state: &'a Self::State, walk: &mut StateWalk<'a, '_>) -> Result<()> {
        let mut members = self.iter().zip(state).enumerate();
        members.try_for_each(|(i, (member, state))| walk.member(i, &mut |walk| member.read(state, walk)))
    }

    fn outline(&self) -> Outline {
        Outline::Chain(self.iter().map(Stage::outline).collect())
    }

    fn recipe(&self) -> Recipe {
        Recipe::Map(vec![("chain".into(), Recipe::List(self.iter().map(Stage::recipe).collect()))])
    }

    fn describe(&self) -> String {
        format!("chain({})", self.iter().map(Stage::describe).collect::<Vec<_>>().join(", "))
    }
}
