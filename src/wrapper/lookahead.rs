use crate::element::Real;
use crate::engine::{Around, Decision, InitContext, Outcome, Part, Stage, StepContext, Wrapper, WrapperState};
use crate::error::{Error, Result};
use crate::needs::Nothing;
use crate::range::FINITE;
use crate::recipe::{Recipe, ToRecipe};
use crate::schedule::Hyperparam;
use crate::state::{Count, EvaluateAs, Moments, State, StateWalk, StateWalkMut};

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
pub type LookaheadState<S> = WrapperState<SlowSteps<S>, S>;

/// What a [`lookahead`] remembers besides the slow parameters and what is inside.
#[derive(Clone, Debug)]
pub struct SlowSteps<S> {
    steps_since_sync: Count,
    syncs: Count,
    /// The fast optimizer's first state, if it is going to be reset to it.
    first: Option<Box<S>>,
}

impl<S: State> State for SlowSteps<S> {
    fn walk<'a>(&'a self, walk: &mut StateWalk<'a, '_>) {
        walk.child("steps_since_sync", &self.steps_since_sync);
        walk.child("syncs", &self.syncs);
    }
    fn walk_mut<'a>(&'a mut self, walk: &mut StateWalkMut<'a, '_>) {
        walk.child("steps_since_sync", &mut self.steps_since_sync);
        walk.child("syncs", &mut self.syncs);
    }
    fn evaluate_as(&self) -> Option<EvaluateAs> {
        Some(EvaluateAs { slot: 0, of_params: 0.0, of_array: 1.0 })
    }
}

impl<S> LookaheadState<S> {
    /// The slow parameters: the ones to evaluate.
    pub fn slow(&self) -> &Moments {
        self.slot(0)
    }

    /// Steps since the last synchronization.
    pub fn steps_since_sync(&self) -> Count {
        self.steps_since_sync
    }
}

impl<T: Stage> Part for Lookahead<T> {
    const NAME: &'static str = "lookahead";
    type Form = Around;

    fn validate(&self) -> Result<()> {
        if self.sync_period == 0 {
            return Err(Error::argument(Self::NAME, "sync_period", "at least 1", 0));
        }
        self.slow_step_size.within(Self::NAME, "slow_step_size", FINITE)
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

impl<T: Stage> Wrapper for Lookahead<T> {
    const SLOTS: &'static [&'static str] = &["slow"];
    const AFTER: bool = true;
    const READS_PARAMS: bool = true;
    type Inner = T;
    type Asks = Nothing;
    type Memory = SlowSteps<T::State>;
    type Run = f64;
    type Slots<C: Real> = [C; 1];
    type Scalars<C: Real> = C;

    fn inner(&self) -> &T {
        &self.inner
    }

    fn slot_starts_as_params(&self, _: usize) -> bool {
        true
    }

    fn start(&self, _: &InitContext<'_>, inner: &T::State) -> Result<SlowSteps<T::State>> {
        let first = self.reset_state.then(|| Box::new(inner.clone()));
        Ok(SlowSteps { steps_since_sync: Count::default(), syncs: Count::default(), first })
    }

    fn decide(&self, memory: &mut SlowSteps<T::State>, _: &StepContext<'_>, _: f64) -> Decision<f64> {
        memory.steps_since_sync.increment();
        if memory.steps_since_sync.get() < self.sync_period {
            return Decision::Inside;
        }
        let step_size = self.slow_step_size.at(memory.syncs.get());
        memory.steps_since_sync.reset();
        memory.syncs.increment();
        Decision::Run(step_size)
    }

    fn scalars<C: Real>(&self, _: &SlowSteps<T::State>, step_size: &f64, _: usize) -> C {
        C::of(*step_size)
    }

    #[inline(always)]
    fn after<C: Real>(step_size: C, [slow]: &mut [C; 1], u: C, p: C) -> C {
        *slow += step_size * (p + u - *slow);
        *slow - p
    }

    fn finish(
        &self,
        memory: &mut SlowSteps<T::State>,
        decision: &Decision<f64>,
        _: Option<Outcome>,
        inner: &mut T::State,
    ) {
        if let (Decision::Run(_), Some(first)) = (decision, &memory.first) {
            *inner = (**first).clone();
        }
    }
}
