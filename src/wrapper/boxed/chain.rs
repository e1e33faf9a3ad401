//! Chains of boxes.

use super::{Boxed, BoxedState};
use crate::engine::members::{Members, in_members};
use crate::engine::{
    Absent, Outline, PieceAt, Place, Shape, Skips, Span, Spare, Then, Tile, Walk, by_own_loops, goes_around,
};
use crate::needs::{Level, Needs};
use crate::part::prelude::*;
use crate::recipe::Recipe;
use crate::state::StateWalk;

/// The members of a chain in a step.
struct InStep<'a, N> {
    members: &'a [Boxed<N>],
    states: &'a [BoxedState],
}

impl<N: Needs, C: Real> Members<C> for InStep<'_, N> {
    fn len(&self) -> usize {
        self.members.len()
    }

    fn shape(&self, member: usize) -> Shape {
        self.members[member].shape()
    }

    fn in_piece(&self, member: usize, at: PieceAt, then: &mut Then<'_, C>) {
        self.members[member].in_piece(&self.states[member], &(), at, then);
    }
}

/// A chain whose length is known at run time.
impl<N: Needs> Stage for Vec<Boxed<N>> {
    type Needs = N;
    type State = Vec<BoxedState>;
    type Run = ();
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

    fn init_state(&self, at: &InitContext<'_>) -> Result<Self::State> {
        self.iter().map(|member| member.init_state(at)).collect()
    }

    fn check(&self, state: &Self::State, at: &StepContext<'_>) -> Result<()> {
        if self.len() != state.len() {
            let problem = format!("the state is of {} members; make one with `init`", state.len());
            return Err(Error::state(self.describe(), problem));
        }
        self.iter().zip(state).try_for_each(|(member, state)| member.check(state, at))
    }

    fn begin(&self, state: &mut Self::State, at: &StepContext<'_>) {
        self.iter().zip(state).for_each(|(member, state)| member.begin(state, at));
    }

    fn barrier(
        &self,
        state: &mut Self::State,
        (): &mut (),
        at: &StepContext<'_>,
        mut index: usize,
        mut sums: Sums<'_>,
        tree: &mut WholeTree<'_>,
    ) {
        for (member, state) in self.iter().zip(state) {
            let shape = member.shape();
            if index < shape.barriers {
                return member.barrier(state, &mut (), at, index, sums, tree);
            }
            index -= shape.barriers;
            sums = sums.skip(shape.sums);
        }
    }

    fn finish(&self, state: &mut Self::State, (): (), mut sums: Sums<'_>, outcome: &mut Outcome) {
        for (member, state) in self.iter().zip(state) {
            member.finish(state, (), sums, outcome);
            sums = sums.skip(member.shape().sums);
        }
    }

    fn ends_at(&self, state: &Self::State, (): &()) -> Option<usize> {
        let (last, before) = self.split_last()?;
        let before: usize = before.iter().map(|member| member.shape().barriers).sum();
        last.ends_at(state.last()?, &()).map(|end| before + end)
    }

    fn pass(&self, state: &Self::State, (): &(), walk: &Walk<'_>, spare: &mut Spare) {
        match (&self[..], &state[..]) {
            ([member], [state]) => member.pass(state, &(), walk, spare),
            _ => by_own_loops(self, (state, &()), walk, spare),
        }
    }

    fn tile<C: Real>(&self, state: &Self::State, (): &(), mut place: Place, span: Span, tile: &mut Tile<'_, C>) {
        for (member, state) in self.iter().zip(state) {
            member.tile(state, &(), place, span, tile);
            place = place.after(member.shape());
        }
    }

    fn in_piece<C: Real>(&self, state: &Self::State, (): &(), at: PieceAt, then: &mut Then<'_, C>) {
        in_members(&InStep { members: self, states: state }, at, then);
    }

    fn kernel<C: Real>(&self, _: &Self::State, (): &(), _: usize) {}

    fn state_bytes(&self, state: &Self::State, leaf: usize, mut at: usize, span: Span) -> usize {
        let mut bytes = 0;
        for (member, state) in self.iter().zip(state) {
            bytes += member.state_bytes(state, leaf, at, span);
            at += member.shape().barriers;
        }
        bytes
    }

    fn unused(&self, state: &Self::State, report: &mut dyn FnMut(&str)) {
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
