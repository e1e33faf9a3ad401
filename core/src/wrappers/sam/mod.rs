mod opaque;
mod stage;

pub use opaque::{AdversarialGradient, AdversarialGradientState, OpaqueSam};

use crate::part::prelude::*;
use crate::state::{Evaluation, StateWalk, StateWalkMut};

/// Sharpness-aware minimization: ascends with an adversarial optimizer, then descends with the gradient found there.
///
/// Each `step` takes one gradient: `sync_period − 1` steps ascend, then one descends from the point where the round
/// began. In between, the parameters are the adversarial ones. The state holds the parameters for evaluation, see
/// [`eval_params`](crate::OptState::eval_params). To run a whole round in each step, which evaluates gradients at
/// adversarial points, use [`opaque_mode`](Sam::opaque_mode).
///
/// Write the adversarial optimizer as for minimization; its updates are negated. The paper's is
/// `chain((normalize(), sgd(rho)))`.
///
/// # Arithmetic
///
/// With `p` the parameters, `g` the gradient there, and `c` the parameters at the start of the round:
///
/// ```text
/// the first sync_period − 1 steps of a round:   u ← −adv_optimizer(g)
/// its last step:                                u ← c − p + optimizer(g), which sees c as the parameters
/// ```
///
/// By default the state of the adversarial optimizer is then reset.
///
/// # Cost
///
/// One float of state per parameter, besides the inner states. No additional pass; as many passes as the inner
/// transformation that needs more. Every `sync_period` gradients are one step of the optimizer. With `reset_state` each
/// of them reinitializes the adversary's state, which allocates.
///
/// # Errors
///
/// `init` fails if `sync_period` is 0.
///
/// # Example
///
/// On `p²/2`, whose gradient is `p`, the first step ascends from 1 to 1.5, and the second descends from 1 by half the
/// gradient at 1.5:
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::wrapper::sam;
///
/// let optimizer = sam(sgd(0.5), sgd(0.5));
/// let mut params = 1.0_f64;
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &1.0, &mut state)?;
/// assert_eq!(params, 1.5);
/// assert_eq!(*state.eval_params(&params)?, 1.0);
/// optimizer.step(&mut params, &1.5, &mut state)?;
/// assert_eq!(params, 0.25);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Foret, Kleiner, Mobahi and Neyshabur, [Sharpness-aware minimization for efficiently improving
/// generalization](https://arxiv.org/abs/2010.01412), 2021, algorithm 1. Optax,
/// [`contrib.sam`](https://optax.readthedocs.io/en/latest/api/contrib.html). Differs: with a `sync_period` of 1 it is
/// the optimizer alone, while in Optax each step starts from the start of the one before; a value that is not finite in
/// the unused update does not reach the parameters; a reset gives the state for the parameters at the start of the
/// round, as in Optax's opaque mode, while its other mode uses the adversarial ones.
pub fn sam<O: Stage, A: Stage>(optimizer: O, adv_optimizer: A) -> Sam<O, A> {
    Sam { optimizer, adv_optimizer, sync_period: 2, reset_state: true }
}

/// See [`sam`].
#[derive(Clone, Debug)]
#[must_use = "a transformation does nothing until it is given gradients"]
pub struct Sam<O, A> {
    optimizer: O,
    adv_optimizer: A,
    sync_period: u64,
    reset_state: bool,
}

impl<O, A> Sam<O, A> {
    /// Sets the number of gradients in a round, the last of them for the optimizer's step; 2 by default.
    pub fn sync_period(mut self, sync_period: u64) -> Self {
        self.sync_period = sync_period;
        self
    }

    /// Sets whether each round resets the state of the adversarial optimizer; true by default. The new state is as
    /// `init` makes it for the parameters at the start of the round; hyperparameters set by name and frozen leaves
    /// stay.
    pub fn reset_state(mut self, reset_state: bool) -> Self {
        self.reset_state = reset_state;
        self
    }

    /// Runs a whole round in each step, which evaluates the gradient at the adversarial points itself.
    ///
    /// The type declares the inputs of such a step:
    ///
    /// ```
    /// use gradchain::extra;
    /// use gradchain::prelude::*;
    /// use gradchain::wrapper::sam;
    ///
    /// let loss = |p: &f64| (p * p / 2.0, *p);
    /// let optimizer = sam(sgd(0.5), sgd(0.5)).opaque_mode();
    /// let mut params = 1.0_f64;
    /// let mut state = optimizer.init(&params)?;
    /// let (value, gradient) = loss(&params);
    /// optimizer.step_with(&mut params, &gradient, extra::value_and_grad_fn(value, loss), &mut state)?;
    /// assert_eq!(params, 0.25);
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    ///
    /// ```compile_fail
    /// use gradchain::prelude::*;
    /// use gradchain::wrapper::sam;
    ///
    /// let optimizer = sam(sgd(0.5), sgd(0.5)).opaque_mode();
    /// let mut params = 1.0_f64;
    /// let mut state = optimizer.init(&params).unwrap();
    /// optimizer.step(&mut params, &1.0, &mut state).unwrap(); // no gradient at the adversarial point
    /// ```
    pub fn opaque_mode(self) -> OpaqueSam<O, A> {
        let Sam { optimizer, adv_optimizer, sync_period, reset_state } = self;
        OpaqueSam { chain: (AdversarialGradient::with(adv_optimizer, sync_period, reset_state), optimizer) }
    }
}

fn check_period(sync_period: u64) -> Result<()> {
    if sync_period > 0 { Ok(()) } else { Err(Error::argument("sam", "sync_period", "at least 1", 0)) }
}

/// The state of a [`sam`].
#[derive(Clone, Debug)]
pub struct SamState<O, A> {
    steps_since_sync: Count,
    opt_state: O,
    adv_state: A,
    cache: Moments,
}

impl<O, A> SamState<O, A> {
    /// Returns the number of steps in the round so far.
    pub fn steps_since_sync(&self) -> Count {
        self.steps_since_sync
    }

    /// Returns the optimizer's state.
    pub fn opt_state(&self) -> &O {
        &self.opt_state
    }

    /// Returns the adversarial optimizer's state.
    pub fn adv_state(&self) -> &A {
        &self.adv_state
    }

    /// Returns the parameters at the start of the last round.
    pub fn cache(&self) -> &Moments {
        &self.cache
    }
}

impl<O: State, A: State> State for SamState<O, A> {
    fn walk<'a>(&'a self, walk: &mut StateWalk<'a, '_>) {
        let [params_weight, moments_weight] = if self.steps_since_sync.get() == 0 { [1.0, 0.0] } else { [0.0, 1.0] };
        walk.evaluation(Evaluation { moments: &self.cache, params_weight, moments_weight });
        walk.child("steps_since_sync", &self.steps_since_sync);
        walk.child("opt_state", &self.opt_state);
        walk.child("adv_state", &self.adv_state);
        walk.child("cache", &self.cache);
    }
    fn walk_mut<'a>(&'a mut self, walk: &mut StateWalkMut<'a, '_>) {
        walk.child("steps_since_sync", &mut self.steps_since_sync);
        walk.child("opt_state", &mut self.opt_state);
        walk.child("adv_state", &mut self.adv_state);
        walk.child("cache", &mut self.cache);
    }
}
