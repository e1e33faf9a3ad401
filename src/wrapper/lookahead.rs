use crate::element::Real;
use crate::engine::{
    InitContext, Outcome, Place, Shape, SlotJob, Span, Stage, StepContext, Sums, Tile, WholeTree, slot_tile,
};
use crate::error::{Error, Result};
use crate::recipe::{Recipe, ToRecipe};
use crate::schedule::Hyperparam;
use crate::state::{Count, Evaluation, Moments, State, StateWalk, StateWalkMut};

/// Lets a fast optimizer run ahead, and every `sync_period` steps moves slow parameters part of the way to where it got;
/// the fast ones start again from there.
///
/// The parameters given to `step` are the fast ones; the slow ones, which are the ones to evaluate, are in the state:
/// [`eval_params`](crate::OptState::eval_params) gives them as a tree.
///
/// # Arithmetic
///
/// ```text
/// f = p + fast(u)                       where the fast optimizer would go
/// every sync_period steps:   slow ← slow + slow_step_size·(f − slow);   u ← slow − p
/// otherwise:                 u ← f − p
/// ```
///
/// # Cost
///
/// One float of state for each parameter, read and written only when synchronizing.
///
/// # Errors
///
/// `init` fails if `sync_period` is 0 or `slow_step_size` is not finite.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
///
/// let optimizer = lookahead(sgd(1.0), 2, 0.5);
/// let mut params = 0.0_f64;
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &1.0, &mut state)?;
/// assert_eq!(params, -1.0);
/// // The fast step leads to −2; half way from 0 to there is −1.
/// optimizer.step(&mut params, &1.0, &mut state)?;
/// assert_eq!(params, -1.0);
/// optimizer.step(&mut params, &1.0, &mut state)?;
/// assert_eq!((params, *state.eval_params(&params)?), (-2.0, -1.0));
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Zhang, Lucas, Hinton and Ba, [Lookahead optimizer: k steps forward, 1 step back](https://arxiv.org/abs/1907.08610),
/// 2019, algorithm 1. Optax, [`lookahead`](https://optax.readthedocs.io/en/latest/api/optimizer_wrappers.html). Differs:
/// the slow parameters are state, so that the parameters are a plain tree as everywhere else.
pub fn lookahead<T: Stage>(fast_optimizer: T, sync_period: u64, slow_step_size: impl Into<Hyperparam>) -> Lookahead<T> {
    Lookahead { inner: fast_optimizer, sync_period, slow_step_size: slow_step_size.into(), reset_state: false }
}

/// See [`lookahead`].
#[derive(Clone, Debug)]
#[must_use = "a transformation does nothing until it is given gradients"]
pub struct Lookahead<T> {
    inner: T,
    sync_period: u64,
    slow_step_size: Hyperparam,
    reset_state: bool,
}

impl<T> Lookahead<T> {
    /// Whether the fast optimizer forgets its state when synchronizing. It is copied from the first state then, which
    /// allocates.
    pub fn reset_state(mut self, reset: bool) -> Self {
        self.reset_state = reset;
        self
    }
}

/// The state of a [`lookahead`].
#[derive(Clone, Debug)]
pub struct LookaheadState<S> {
    steps_since_sync: Count,
    syncs: Count,
    slow: Moments,
    inner: S,
    /// The fast optimizer's first state, if it is going to be reset to it.
    first: Option<Box<S>>,
}

impl<S: State> State for LookaheadState<S> {
    fn walk<'a>(&'a self, walk: &mut StateWalk<'a, '_>) {
        walk.evaluation(Evaluation { moments: &self.slow, of_params: 0.0, of_moments: 1.0 });
        walk.child("steps_since_sync", &self.steps_since_sync);
        walk.child("syncs", &self.syncs);
        walk.child("slow", &self.slow);
        walk.child("inner", &self.inner);
    }
    fn walk_mut<'a>(&'a mut self, walk: &mut StateWalkMut<'a, '_>) {
        walk.child("steps_since_sync", &mut self.steps_since_sync);
        walk.child("syncs", &mut self.syncs);
        walk.child("slow", &mut self.slow);
        walk.child("inner", &mut self.inner);
    }
}

impl<S> LookaheadState<S> {
    /// The slow parameters: the ones to evaluate.
    pub fn slow(&self) -> &Moments {
        &self.slow
    }

    /// Steps since the last synchronization.
    pub fn steps_since_sync(&self) -> Count {
        self.steps_since_sync
    }

    /// The fast optimizer's state.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// The fast optimizer's state, to write.
    pub fn inner_mut(&mut self) -> &mut S {
        &mut self.inner
    }
}

struct Sync<C>(C);

impl<C: Real> SlotJob<C> for Sync<C> {
    #[inline(always)]
    fn run(self, u: &mut [C], p: &[C], slow: &mut [C]) {
        sync(self.0, u, p, slow);
    }
}

#[inline(always)]
fn sync<C: Real>(step: C, u: &mut [C], p: &[C], slow: &mut [C]) {
    for ((u, p), slow) in u.iter_mut().zip(p).zip(slow) {
        *slow += step * (*p + *u - *slow);
        *u = *slow - *p;
    }
}

#[doc(hidden)]
#[derive(Debug)]
pub struct LookaheadRun<R> {
    /// How far the slow parameters move, if this step synchronizes.
    sync: Option<f64>,
    inner: R,
}

const SYNC: Shape = Shape::elementwise(true, true);

impl<T: Stage> Stage for Lookahead<T> {
    type Needs = T::Needs;
    type State = LookaheadState<T::State>;
    type Run = LookaheadRun<T::Run>;
    type Kernel<C: Real> = ();

    const SHAPE: Shape = T::SHAPE.then(SYNC);
    const FUSES: bool = false;

    fn shape(&self) -> Shape {
        self.inner.shape().then(SYNC)
    }

    fn needs(&self) -> crate::needs::Level {
        self.inner.needs()
    }

    fn validate(&self) -> Result<()> {
        if self.sync_period == 0 {
            return Err(Error::argument("lookahead", "sync_period", "at least 1", 0));
        }
        self.slow_step_size.validate("lookahead", "slow_step_size", "finite", f64::is_finite)?;
        self.inner.validate()
    }

    fn init_state(&self, at: &InitContext<'_>) -> Result<Self::State> {
        let inner = self.inner.init_state(at)?;
        Ok(LookaheadState {
            steps_since_sync: Count::default(),
            syncs: Count::default(),
            slow: at.params_as_moments()?,
            first: self.reset_state.then(|| Box::new(inner.clone())),
            inner,
        })
    }

    fn check(&self, state: &Self::State, at: &StepContext<'_>) -> Result<()> {
        self.inner.check(&state.inner, at)
    }

    fn begin(&self, state: &mut Self::State, at: &StepContext<'_>) -> Self::Run {
        state.steps_since_sync.increment();
        let due = state.steps_since_sync.get() >= self.sync_period;
        let sync = due.then(|| self.slow_step_size.at(state.syncs.get()));
        if due {
            state.steps_since_sync.reset();
            state.syncs.increment();
        }
        LookaheadRun { sync, inner: self.inner.begin(&mut state.inner, at) }
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
        self.inner.finish(&mut state.inner, run.inner, sums, outcome);
        if run.sync.is_some()
            && let Some(first) = &state.first
        {
            state.inner = (**first).clone();
        }
    }

    fn tile<C: Real>(&self, state: &Self::State, run: &Self::Run, place: Place, span: Span, tile: &mut Tile<'_, C>) {
        self.inner.tile(&state.inner, &run.inner, place, span, tile);
        let place = place.after(self.inner.shape());
        if let Some(step) = run.sync
            && span.has(place.at)
        {
            slot_tile(&state.slow, tile, Sync(C::of(step)));
        }
    }

    fn kernel<C: Real>(&self, _: &Self::State, _: &Self::Run, _: usize) {}

    fn state_bytes(&self, state: &Self::State, leaf: usize, at: usize, span: Span) -> usize {
        let inner = self.inner.state_bytes(&state.inner, leaf, at, span);
        let own = state.slow.dtype(leaf).map_or(0, |dtype| 2 * dtype.size());
        if span.has(at + self.inner.shape().barriers) { inner + own } else { inner }
    }

    fn unused(&self, state: &Self::State, report: &mut dyn FnMut(&str)) {
        self.inner.unused(&state.inner, report);
    }

    fn recipe(&self) -> Recipe {
        Recipe::call(
            "lookahead",
            [
                ("fast_optimizer", self.inner.recipe()),
                ("sync_period", self.sync_period.to_recipe()),
                ("slow_step_size", self.slow_step_size.to_recipe()),
                ("reset_state", self.reset_state.to_recipe()),
            ],
        )
    }

    fn describe(&self) -> String {
        format!("lookahead({}, {}, {})", self.inner.describe(), self.sync_period, self.slow_step_size)
    }
}
