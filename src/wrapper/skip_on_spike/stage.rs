//! How a `skip_on_spike` runs.

use super::{SkipOnSpike, SkipOnSpikeState, SpikeStatistic};
use crate::element::Real;
use crate::engine::{
    InitContext, Job, Outcome, Place, Shape, SlotList, Span, Stage, StepContext, Sums, Tile, WholeTree, dispatch,
    fused_tile, sum_tile,
};
use crate::error::{Error, Result};
use crate::needs::{Level, Needs};
use crate::recipe::{Recipe, ToRecipe};

#[doc(hidden)]
#[derive(Debug)]
pub struct SkipOnSpikeRun<R> {
    decided: bool,
    /// That of what is inside, once it is decided that the step is done.
    inner: Option<R>,
}

struct Squares<'a, C>(&'a [C]);

impl<C: Real> Job for Squares<'_, C> {
    type Output = f64;
    #[inline(always)]
    fn run(self) -> f64 {
        sum_tile(self.0, |u| u.as_f64() * u.as_f64())
    }
}

impl<T: Stage, S: SpikeStatistic> SkipOnSpike<T, S> {
    /// In a step without gradients there is nothing to judge.
    fn decide(
        &self,
        state: &mut SkipOnSpikeState<T::State>,
        run: &mut SkipOnSpikeRun<T::Run>,
        at: &StepContext<'_>,
        value: f64,
    ) {
        run.decided = true;
        if at.flush || state.take(value, self) {
            run.inner = Some(self.inner.begin(&mut state.inner, at));
        }
    }
}

impl<T: Stage, S: SpikeStatistic> Stage for SkipOnSpike<T, S> {
    type Needs = <T::Needs as Needs>::Or<S::Needs>;
    type State = SkipOnSpikeState<T::State>;
    type Run = SkipOnSpikeRun<T::Run>;
    type Kernel<C: Real> = T::Kernel<C>;

    const SHAPE: Shape = S::SHAPE.then(T::SHAPE);
    const SLOTS: usize = T::SLOTS;
    const FUSES: bool = T::FUSES && crate::engine::fits(Self::SHAPE, Self::SLOTS);

    fn shape(&self) -> Shape {
        S::SHAPE.then(self.inner.shape())
    }

    fn needs(&self) -> Level {
        self.inner.needs().max(S::Needs::LEVEL)
    }

    fn validate(&self) -> Result<()> {
        if self.deviations.is_nan() || self.deviations < 0.0 {
            return Err(Error::argument("skip_on_spike", "deviations", "not negative", self.deviations));
        }
        if !(0.0..1.0).contains(&self.decay) {
            return Err(Error::argument("skip_on_spike", "decay", "in [0, 1)", self.decay));
        }
        self.inner.validate()
    }

    fn init_state(&self, at: &InitContext<'_>) -> Result<Self::State> {
        Ok(SkipOnSpikeState::new(self.inner.init_state(at)?))
    }

    fn check(&self, state: &Self::State, at: &StepContext<'_>) -> Result<()> {
        self.inner.check(&state.inner, at)
    }

    fn begin(&self, state: &mut Self::State, at: &StepContext<'_>) -> Self::Run {
        let mut run = SkipOnSpikeRun { decided: false, inner: None };
        if S::SHAPE.barriers == 0 {
            self.decide(state, &mut run, at, at.value().unwrap_or(f64::NAN));
        }
        run
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
        if !run.decided {
            self.decide(state, run, at, sums.total(0).sqrt());
        } else if let Some(inner) = &mut run.inner {
            let index = index - S::SHAPE.barriers;
            self.inner.barrier(&mut state.inner, inner, at, index, sums.skip(S::SHAPE.sums), tree);
        }
    }

    fn finish(&self, state: &mut Self::State, run: Self::Run, sums: Sums<'_>, outcome: &mut Outcome) {
        match run.inner {
            Some(inner) => self.inner.finish(&mut state.inner, inner, sums.skip(S::SHAPE.sums), outcome),
            None => *outcome = Outcome { emitted: false, skipped: true },
        }
    }

    fn ends_at(&self, state: &Self::State, run: &Self::Run) -> Option<usize> {
        match &run.inner {
            Some(inner) => self.inner.ends_at(&state.inner, inner).map(|end| S::SHAPE.barriers + end),
            None => run.decided.then_some(S::SHAPE.barriers),
        }
    }

    fn tile<C: Real>(&self, state: &Self::State, run: &Self::Run, place: Place, span: Span, tile: &mut Tile<'_, C>) {
        if Self::FUSES && self.fuses_now(state, run, tile.leaf) {
            return fused_tile(self, state, run, place, span, tile);
        }
        let inside = place.after(S::SHAPE);
        if S::SHAPE.barriers > 0 && place.at == span.to {
            let sum = dispatch(tile.isa(), Squares(tile.input()));
            tile.sums()[place.sum] += sum;
        } else if let Some(inner) = &run.inner {
            self.inner.tile(&state.inner, inner, inside, span, tile);
        } else if run.decided && span.has(inside.at) {
            tile.set_zero();
        }
    }

    fn fuses_now(&self, state: &Self::State, run: &Self::Run, leaf: usize) -> bool {
        Self::FUSES && run.inner.as_ref().is_some_and(|inner| self.inner.fuses_now(&state.inner, inner, leaf))
    }

    #[inline]
    fn kernel<C: Real>(&self, state: &Self::State, run: &Self::Run, leaf: usize) -> T::Kernel<C> {
        let inner = run.inner.as_ref().expect("the fused loop is run once it is decided that the step is done");
        self.inner.kernel(&state.inner, inner, leaf)
    }

    fn slots(&self, state: &Self::State, leaf: usize, list: &mut SlotList) {
        self.inner.slots(&state.inner, leaf, list);
    }

    #[inline(always)]
    fn apply<C: Real>(k: &T::Kernel<C>, at: usize, span: Span, slots: &mut [C], u: C, p: C, tally: &mut [u32]) -> C {
        T::apply::<C>(k, at + S::SHAPE.barriers, span, slots, u, p, &mut tally[S::SHAPE.sums..])
    }

    #[inline(always)]
    fn reduce<C: Real>(k: &T::Kernel<C>, place: Place, span: Span, u: &[C], p: &[C], sums: &mut [f64]) {
        T::reduce::<C>(k, place.after(S::SHAPE), span, u, p, sums);
    }

    fn state_bytes(&self, state: &Self::State, leaf: usize, at: usize, span: Span) -> usize {
        self.inner.state_bytes(&state.inner, leaf, at + S::SHAPE.barriers, span)
    }

    fn unused(&self, state: &Self::State, report: &mut dyn FnMut(&str)) {
        self.inner.unused(&state.inner, report);
    }

    fn recipe(&self) -> Recipe {
        Recipe::call(
            "skip_on_spike",
            [
                ("inner", self.inner.recipe()),
                ("deviations", self.deviations.to_recipe()),
                ("of", Recipe::text(S::NAME)),
                ("decay", self.decay.to_recipe()),
                ("warmup_steps", self.warmup_steps.to_recipe()),
                ("max_consecutive", self.max_consecutive.to_recipe()),
            ],
        )
    }

    fn describe(&self) -> String {
        format!("skip_on_spike({}, {:?})", self.inner.describe(), self.statistic)
    }
}
