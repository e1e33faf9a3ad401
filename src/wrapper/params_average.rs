//! What [`params_ema`](super::params_ema()) and [`params_swa`](super::params_swa()) share: an optimizer, and beside it an
//! average of the parameters that it trains.

use crate::element::Real;
use crate::engine::{
    InitContext, Outcome, Place, Shape, SlotList, SlotsJob, Span, Stage, StepContext, Sums, Tile, WholeTree, fits,
    fused_tile, slots_read,
};
use crate::error::Result;
use crate::state::{Count, Evaluation, Moments, Scalar, State, StateWalk, StateWalkMut};

/// Which parameters are averaged, and how much each of them counts.
#[doc(hidden)]
pub trait Averages: Clone + core::fmt::Debug + Send + Sync + 'static {
    /// Checks the arguments.
    ///
    /// # Errors
    ///
    /// If one is out of its range.
    fn validate(&self) -> Result<()>;

    /// The average before the first step, and how much it counts.
    ///
    /// # Errors
    ///
    /// If there is not enough memory for it.
    fn start(&self, at: &InitContext<'_>) -> Result<(Moments, f64)>;

    /// What share of the average the parameters after this step become; `None` if they are left out. `steps` counts this
    /// step, `averaged` does not; `mass` is how much what has been averaged counts, and is brought up to date.
    fn share(&self, steps: Count, averaged: Count, mass: &mut Scalar) -> Option<f64>;
}

/// An optimizer, and an average of what it trains.
///
/// A step works out an update of the parameters; what they are afterwards is known for certain only when the next step is
/// given them: rounded to their type, and after whatever comes behind this in a chain. So each step takes up into the
/// average the parameters that it is given, with the share that was written down at the end of the one before; and until
/// then [`Evaluation`] mixes them in.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct Averaged<T, A> {
    pub(super) inner: T,
    pub(super) average: A,
}

/// The state of a [`params_ema`](super::params_ema()) or [`params_swa`](super::params_swa()).
///
/// The average as of the last step is [`eval_params`](crate::OptState::eval_params).
#[derive(Clone, Debug)]
pub struct ParamsAverageState<S> {
    steps: Count,
    averaged: Count,
    /// The sum of the weights of what has been averaged, as of the last step.
    mass: Scalar,
    /// What share of the average the parameters of the moment become, once the next step has taken them up; 0 if none.
    share: Scalar,
    average: Moments,
    inner: S,
}

impl<S: State> State for ParamsAverageState<S> {
    fn walk<'a>(&'a self, walk: &mut StateWalk<'a, '_>) {
        // As long as nothing has a weight, what is trained is what is evaluated.
        let share = if self.mass.get() == 0.0 { 1.0 } else { self.share.get() };
        walk.evaluation(Evaluation { moments: &self.average, of_params: share, of_moments: 1.0 - share });
        walk.child("steps", &self.steps);
        walk.child("averaged", &self.averaged);
        walk.child("mass", &self.mass);
        walk.child("share", &self.share);
        walk.child("average", &self.average);
        walk.child("inner", &self.inner);
    }
    fn walk_mut<'a>(&'a mut self, walk: &mut StateWalkMut<'a, '_>) {
        walk.child("steps", &mut self.steps);
        walk.child("averaged", &mut self.averaged);
        walk.child("mass", &mut self.mass);
        walk.child("share", &mut self.share);
        walk.child("average", &mut self.average);
        walk.child("inner", &mut self.inner);
    }
}

impl<S> ParamsAverageState<S> {
    /// Steps in which the optimizer inside emitted an update.
    pub fn steps(&self) -> Count {
        self.steps
    }

    /// How many of the parameters that these steps led to are in the average.
    pub fn averaged(&self) -> Count {
        self.averaged
    }

    /// The state of the optimizer inside.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// The state of the optimizer inside, to write.
    pub fn inner_mut(&mut self) -> &mut S {
        &mut self.inner
    }
}

/// The average moves to the parameters: `average ← (1 − share)·average + share·parameter`.
#[derive(Clone, Copy, Debug)]
struct Take<C> {
    share: C,
    rest: C,
    /// The average counts for more than the parameters.
    near: bool,
}

impl<C: Real> Take<C> {
    fn of(share: f64) -> Take<C> {
        Take { share: C::of(share), rest: C::of(1.0 - share), near: share < 0.5 }
    }

    /// From the nearer end, so that a share of 1 gives the parameter itself, and equal ones stay what they are.
    #[inline(always)]
    fn next(self, average: C, p: C) -> C {
        let gap = p - average;
        if self.near { average + self.share * gap } else { p - self.rest * gap }
    }
}

impl<C: Real> SlotsJob<C, 1> for Take<C> {
    #[inline(always)]
    fn read(&self, _: &[C], p: &[C], [average]: [&mut [C]; 1], _: &mut [f64]) {
        average.iter_mut().zip(p).for_each(|(average, p)| *average = self.next(*average, *p));
    }
}

#[doc(hidden)]
#[derive(Debug)]
pub struct AveragedRun<R> {
    /// The share of the parameters that this step is given, if they are to be taken up.
    share: Option<f64>,
    inner: R,
}

#[doc(hidden)]
#[derive(Clone, Copy)]
pub struct AveragedKernel<K, C> {
    take: Take<C>,
    inner: K,
}

/// Behind what is inside: at its last barrier at the latest updates are stored if it has state, and state of its own before
/// that would have them stored earlier.
const TAKE: Shape = Shape::elementwise(true, true);

impl<T: Stage, A: Averages> Stage for Averaged<T, A> {
    type Needs = T::Needs;
    type State = ParamsAverageState<T::State>;
    type Run = AveragedRun<T::Run>;
    type Kernel<C: Real> = AveragedKernel<T::Kernel<C>, C>;

    const SHAPE: Shape = T::SHAPE.then(TAKE);
    const SLOTS: usize = T::SLOTS + 1;
    const FUSES: bool = T::FUSES && fits(Self::SHAPE, Self::SLOTS);

    fn shape(&self) -> Shape {
        self.inner.shape().then(TAKE)
    }

    fn needs(&self) -> crate::needs::Level {
        self.inner.needs()
    }

    fn validate(&self) -> Result<()> {
        self.average.validate()?;
        self.inner.validate()
    }

    fn init_state(&self, at: &InitContext<'_>) -> Result<Self::State> {
        let (average, mass) = self.average.start(at)?;
        Ok(ParamsAverageState {
            steps: Count::default(),
            averaged: Count::default(),
            mass: Scalar::new(mass),
            share: Scalar::default(),
            average,
            inner: self.inner.init_state(at)?,
        })
    }

    fn check(&self, state: &Self::State, at: &StepContext<'_>) -> Result<()> {
        self.inner.check(&state.inner, at)
    }

    fn begin(&self, state: &mut Self::State, at: &StepContext<'_>) -> Self::Run {
        let share = core::mem::take(&mut state.share).get();
        AveragedRun { share: (share != 0.0).then_some(share), inner: self.inner.begin(&mut state.inner, at) }
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
        self.inner.barrier(&mut state.inner, &mut run.inner, at, index, sums, tree);
    }

    fn finish(&self, state: &mut Self::State, run: Self::Run, sums: Sums<'_>, outcome: &mut Outcome) {
        // What is inside is asked alone: elsewhere in a chain or partition something may hold back its own updates.
        let mut inside = Outcome { emitted: true, skipped: false };
        self.inner.finish(&mut state.inner, run.inner, sums, &mut inside);
        if inside.emitted {
            state.steps.increment();
            if let Some(share) = self.average.share(state.steps, state.averaged, &mut state.mass) {
                state.averaged.increment();
                state.share.set(share);
            }
        }
        outcome.emitted &= inside.emitted;
        outcome.skipped |= inside.skipped;
    }

    fn ends_at(&self, state: &Self::State, run: &Self::Run) -> Option<usize> {
        // What is to be taken up is taken up in the last pass.
        if run.share.is_some() { None } else { self.inner.ends_at(&state.inner, &run.inner) }
    }

    fn tile<C: Real>(&self, state: &Self::State, run: &Self::Run, place: Place, span: Span, tile: &mut Tile<'_, C>) {
        if Self::FUSES && self.fuses_now(state, run, tile.leaf()) {
            return fused_tile(self, state, run, place, span, tile);
        }
        self.inner.tile(&state.inner, &run.inner, place, span, tile);
        let own = place.after(self.inner.shape());
        if let Some(share) = run.share
            && span.has(own.at)
        {
            slots_read([&state.average], own.sum, tile, &Take::of(share));
        }
    }

    fn fuses_now(&self, state: &Self::State, run: &Self::Run, leaf: usize) -> bool {
        // In a step that takes nothing up the average is not to be touched, not even read.
        Self::FUSES && run.share.is_some() && self.inner.fuses_now(&state.inner, &run.inner, leaf)
    }

    #[inline]
    fn kernel<C: Real>(&self, state: &Self::State, run: &Self::Run, leaf: usize) -> Self::Kernel<C> {
        let inner = self.inner.kernel(&state.inner, &run.inner, leaf);
        AveragedKernel { take: Take::of(run.share.unwrap_or_default()), inner }
    }

    fn slots(&self, state: &Self::State, leaf: usize, list: &mut SlotList) {
        self.inner.slots(&state.inner, leaf, list);
        list.push(&state.average, leaf);
    }

    #[inline(always)]
    fn apply<C: Real>(k: &Self::Kernel<C>, at: usize, span: Span, slots: &mut [C], u: C, p: C, tally: &mut [u32]) -> C {
        let (inner, own) = slots.split_at_mut(T::SLOTS);
        if span.has(at + T::SHAPE.barriers) {
            own[0] = k.take.next(own[0], p);
        }
        T::apply::<C>(&k.inner, at, span, inner, u, p, tally)
    }

    #[inline(always)]
    fn reduce<C: Real>(k: &Self::Kernel<C>, place: Place, span: Span, u: &[C], p: &[C], sums: &mut [f64]) {
        T::reduce::<C>(&k.inner, place, span, u, p, sums);
    }

    fn state_bytes(&self, state: &Self::State, leaf: usize, at: usize, span: Span) -> usize {
        let inner = self.inner.state_bytes(&state.inner, leaf, at, span);
        let own = state.average.dtype(leaf).map_or(0, |dtype| 2 * dtype.size());
        if span.has(at + self.inner.shape().barriers) { inner + own } else { inner }
    }

    fn unused(&self, state: &Self::State, report: &mut dyn FnMut(&str)) {
        self.inner.unused(&state.inner, report);
    }
}
