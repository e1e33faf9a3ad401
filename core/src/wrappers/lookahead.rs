use crate::part::prelude::*;
use crate::state::{EvaluateAs, restart};

/// Runs a fast optimizer, and every `sync_period` steps moves slow parameters part of the way to the fast ones.
///
/// The fast parameters then continue from the slow ones. The parameters passed to `step` are the fast ones. The slow
/// ones, which are to be evaluated, are in the state: [`eval_params`](crate::OptState::eval_params) returns them as a
/// tree. A step in which the fast optimizer emits nothing, such as a mini-step of [`multi_steps`],
/// is not counted and does not synchronize.
///
/// # Arithmetic
///
/// ```text
/// f = p + fast(u)                       the parameters after the fast step
/// every sync_period steps:   slow ← slow + slow_step_size·(f − slow);   u ← slow − p
/// otherwise:                 u ← f − p
/// ```
///
/// # Cost
///
/// One float of state per parameter, read and written only when synchronizing.
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
/// // The fast step leads to −2, and half of that is −1.
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
/// 2019, algorithm 1. Optax, [`lookahead`](https://optax.readthedocs.io/en/latest/api/optimizer_wrappers.html).
/// Differs: the slow parameters are state, so that the parameters are a plain tree as everywhere else.
///
/// [`multi_steps`]: https://docs.rs/gradchain/latest/gradchain/wrapper/fn.multi_steps.html
pub fn lookahead<T: Stage>(fast_optimizer: T, sync_period: u64, slow_step_size: impl IntoHyperparam) -> Lookahead<T> {
    Lookahead::with(fast_optimizer, sync_period, slow_step_size.into())
}

wrapper! {
    /// See [`lookahead`].
    pub Lookahead<T> as "lookahead" around fast_optimizer: AroundWithArithmetic {
        sync_period: u64 in AT_LEAST_1;
        slow_step_size: Hyperparam in FINITE;
        /// Sets whether synchronizing resets the state of the fast optimizer. The new state is as `init` makes it for
        /// the parameters passed to `step`, which allocates; hyperparameters set by name and frozen leaves stay.
        reset_state: bool = false;
    }
    shows "{}, {}": sync_period, slow_step_size;
}

/// The state of a [`lookahead`].
pub type LookaheadState<S> = WrapperState<LookaheadMemory<S>, S>;

memory! {
    /// The memory of a [`lookahead`], besides the slow parameters and the inner state.
    pub LookaheadMemory<S: State> {
        steps_since_sync: Count,
        syncs: Count,
    }
    beside {
        /// The state of the fast optimizer after this step, if it is reset.
        fresh: Option<Box<S>>,
        active: Vec<bool>,
        /// The leaves that rest in this step, and keep their state.
        resting: Vec<bool>,
        step_size: f64,
    }
    evaluate |_memory| EvaluateAs { slot: 0, params_weight: 0.0, array_weight: 1.0 };
    clock syncs;
}

impl<S: State> LookaheadState<S> {
    /// Returns the slow parameters, which are to be evaluated.
    pub fn slow(&self) -> &Moments {
        self.slot(0)
    }

    /// Returns the number of steps since the last synchronization in which the fast optimizer emitted updates.
    pub fn steps_since_sync(&self) -> Count {
        self.steps_since_sync
    }
}

impl<T: Stage> Lookahead<T> {
    /// Returns true if the next step that emits synchronizes.
    fn synchronizes(&self, memory: &LookaheadMemory<T::State>) -> bool {
        memory.steps_since_sync.get().saturating_add(1) >= self.sync_period
    }
}

impl<T: Stage> Wrapper for Lookahead<T> {
    type Memory = LookaheadMemory<T::State>;
    const RUNS: Runs = Runs::DECIDED.inner_only();

    fn start(&self, memory: &mut LookaheadMemory<T::State>, at: &InitContext<'_>) -> Result<()> {
        memory.active = at.active().into();
        Ok(())
    }

    /// Checks that the optimizer can start from the current parameters.
    fn check(&self, memory: &LookaheadMemory<T::State>, at: &StepContext<'_>) -> Result<()> {
        match self.reset_state && self.synchronizes(memory) {
            true => at.can_reinitialize(&self.inner, &memory.active),
            false => Ok(()),
        }
    }

    fn decide(&self, memory: &mut LookaheadMemory<T::State>, at: &StepContext<'_>, _: f64) -> Decision {
        if !self.synchronizes(memory) {
            return Decision::InnerOnly;
        }
        memory.step_size = self.slow_step_size.at(memory.syncs.get());
        memory.resting.clear();
        memory.resting.extend_from_slice(at.resting);
        memory.fresh = self.reset_state.then(|| Box::new(at.reinitialize(&self.inner, &memory.active)));
        Decision::Run
    }

    fn finish(
        &self,
        memory: &mut LookaheadMemory<T::State>,
        decision: Decision,
        inside: Option<Outcome>,
        inner: &mut T::State,
    ) {
        let fresh = memory.fresh.take();
        if inside.is_none() {
            return;
        }
        if decision == Decision::InnerOnly {
            return memory.steps_since_sync.increment();
        }
        memory.steps_since_sync.reset();
        memory.syncs.increment();
        if let Some(fresh) = fresh {
            restart(inner, *fresh, &memory.resting);
        }
    }
}

impl<T: Stage> Arithmetic for Lookahead<T> {
    const SLOTS: &'static [Slot] = &[Slot::exact("slow").starts_as_params()];
    const ELEMENTS: Elements = Elements::NONE.after(true).reads_params();
    type Slots<C: Real> = [C; 1];
    type Scalars<C: Real> = C;

    fn scalars<C: Real>(&self, memory: &LookaheadMemory<T::State>, _: usize) -> C {
        C::of(memory.step_size)
    }

    #[inline(always)]
    fn after<C: Real>(step_size: C, [slow]: &mut [C; 1], u: C, p: C) -> C {
        *slow += step_size * (p + u - *slow);
        *slow - p
    }
}
