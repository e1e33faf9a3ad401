//! How what runs in some steps only is run.

use super::{Condition, Conditionally, ConditionallyState};
use crate::element::Real;
use crate::engine::{
    InitContext, Outcome, Place, Shape, SlotList, Span, Stage, StepContext, Sums, Tile, WholeTree, fused_tile,
};
use crate::error::Result;
use crate::needs::{Level, Needs};
use crate::recipe::{Recipe, ToRecipe};
use crate::state::Count;

impl<T, W, const ZERO: bool> Conditionally<T, W, ZERO> {
    const NAME: &'static str = if ZERO { "conditionally_mask" } else { "conditionally_transform" };
}

/// The run of what is inside is there in steps in which it runs.
impl<T: Stage, W: Condition, const ZERO: bool> Stage for Conditionally<T, W, ZERO> {
    type Needs = <T::Needs as Needs>::Or<W::Needs>;
    type State = ConditionallyState<T::State>;
    type Run = Option<T::Run>;
    type Kernel<C: Real> = T::Kernel<C>;

    const SHAPE: Shape = T::SHAPE;
    const FUSES: bool = T::FUSES;
    const SLOTS: usize = T::SLOTS;

    fn shape(&self) -> Shape {
        self.inner.shape()
    }

    fn needs(&self) -> Level {
        self.inner.needs().max(W::Needs::LEVEL)
    }

    fn validate(&self) -> Result<()> {
        self.condition.validate()?;
        self.inner.validate()
    }

    fn init_state(&self, at: &InitContext<'_>) -> Result<Self::State> {
        Ok(ConditionallyState { step: Count::default(), inner: self.inner.init_state(at)? })
    }

    fn check(&self, state: &Self::State, at: &StepContext<'_>) -> Result<()> {
        self.inner.check(&state.inner, at)
    }

    fn begin(&self, state: &mut Self::State, at: &StepContext<'_>) -> Self::Run {
        let holds = self.condition.holds(state.step.get(), at);
        state.step.increment();
        holds.then(|| self.inner.begin(&mut state.inner, at))
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
        if let Some(run) = run {
            self.inner.barrier(&mut state.inner, run, at, index, sums, tree);
        }
    }

    fn finish(&self, state: &mut Self::State, run: Self::Run, sums: Sums<'_>, outcome: &mut Outcome) {
        match run {
            Some(run) => self.inner.finish(&mut state.inner, run, sums, outcome),
            None if ZERO => *outcome = Outcome { emitted: false, skipped: true },
            None => {}
        }
    }

    fn ends_at(&self, state: &Self::State, run: &Self::Run) -> Option<usize> {
        match run {
            Some(run) => self.inner.ends_at(&state.inner, run),
            None => ZERO.then_some(0),
        }
    }

    fn tile<C: Real>(&self, state: &Self::State, run: &Self::Run, place: Place, span: Span, tile: &mut Tile<'_, C>) {
        if Self::FUSES && self.fuses_now(state, run, tile.leaf) {
            fused_tile(self, state, run, place, span, tile);
        } else if let Some(run) = run {
            self.inner.tile(&state.inner, run, place, span, tile);
        } else if ZERO && span.has(place.at) {
            tile.set_zero();
        }
    }

    fn fuses_now(&self, state: &Self::State, run: &Self::Run, leaf: usize) -> bool {
        Self::FUSES && run.as_ref().is_some_and(|run| self.inner.fuses_now(&state.inner, run, leaf))
    }

    #[inline]
    fn kernel<C: Real>(&self, state: &Self::State, run: &Self::Run, leaf: usize) -> T::Kernel<C> {
        let run = run.as_ref().expect("the fused loop is run in steps in which the condition holds");
        self.inner.kernel(&state.inner, run, leaf)
    }

    fn slots(&self, state: &Self::State, leaf: usize, list: &mut SlotList) {
        self.inner.slots(&state.inner, leaf, list);
    }

    #[inline(always)]
    fn apply<C: Real>(k: &T::Kernel<C>, at: usize, span: Span, slots: &mut [C], u: C, p: C, tally: &mut [u32]) -> C {
        T::apply::<C>(k, at, span, slots, u, p, tally)
    }

    #[inline(always)]
    fn reduce<C: Real>(k: &T::Kernel<C>, place: Place, span: Span, u: &[C], p: &[C], sums: &mut [f64]) {
        T::reduce::<C>(k, place, span, u, p, sums);
    }

    fn state_bytes(&self, state: &Self::State, leaf: usize, at: usize, span: Span) -> usize {
        self.inner.state_bytes(&state.inner, leaf, at, span)
    }

    fn unused(&self, state: &Self::State, report: &mut dyn FnMut(&str)) {
        self.inner.unused(&state.inner, report);
    }

    fn recipe(&self) -> Recipe {
        let told = W::Needs::LEVEL > Level::Nothing;
        Recipe::call(
            Self::NAME,
            [
                ("inner", self.inner.recipe()),
                ("should_transform_fn", self.condition.to_recipe()),
                ("forward_extra_args", told.to_recipe()),
            ],
        )
    }

    fn describe(&self) -> String {
        let name = Self::NAME;
        format!("{name}({}, {:?})", self.inner.describe(), self.condition)
    }
}
