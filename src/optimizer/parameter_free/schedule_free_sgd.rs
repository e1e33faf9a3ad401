use super::warm_up::warmed_up;
use crate::element::DType;
use crate::schedule::Hyperparam;
use crate::transform::{AddDecayedWeights, ScaleByLearningRate, add_decayed_weights, scale_by_learning_rate};
use crate::wrapper::{Argument, Arguments, ScheduleFree, schedule_free};

/// Gradient descent that averages itself, by [`schedule_free`]: no schedule, only a warm-up.
///
/// Evaluate with [`eval_params`](crate::OptState::eval_params), not with the parameters that are trained.
///
/// # Arithmetic
///
/// ```text
/// schedule_free(chain(add_decayed_weights(weight_decay), scale_by_learning_rate(rate)), rate, b1, weight_lr_power)
/// rate = warmup_constant(0, learning_rate, warmup_steps)
/// ```
///
/// Defaults: `learning_rate` 1, no warm-up, `b1` 0.9, `weight_decay` 0, `weight_lr_power` 2.
///
/// # Cost
///
/// One float of state for each parameter; one pass.
///
/// # Errors
///
/// `init` fails if an argument is out of the range that [`schedule_free`] gives.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
///
/// let optimizer = schedule_free_sgd().learning_rate(0.5);
/// let mut params = 4.0_f64;
/// let mut state = optimizer.init(&params)?;
/// for _ in 0..100 {
///     let gradient = params; // of p²/2
///     optimizer.step(&mut params, &gradient, &mut state)?;
/// }
/// assert!(state.eval_params(&params)?.abs() < 0.01);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Defazio and others, [The road less scheduled](https://arxiv.org/abs/2405.15682), 2024. Optax,
/// [`contrib.schedule_free_sgd`](https://optax.readthedocs.io/en/latest/api/contrib.html). Differs: a `learning_rate` may be
/// a schedule also where there is a warm-up, and 0 `warmup_steps` are none, where Optax's rate stays 0.
pub fn schedule_free_sgd() -> ScheduleFreeSgd {
    let base = (add_decayed_weights(0.0), scale_by_learning_rate(1.0));
    ScheduleFreeSgd { learning_rate: 1.0.into(), warmup_steps: None, wrapped: schedule_free(base, 1.0) }
}

type Wrapped = ScheduleFree<(AddDecayedWeights, ScaleByLearningRate)>;

/// See [`schedule_free_sgd`](schedule_free_sgd()).
#[derive(Clone, Debug)]
#[must_use = "a transformation does nothing until it is given gradients"]
pub struct ScheduleFreeSgd {
    learning_rate: Hyperparam,
    warmup_steps: Option<u64>,
    wrapped: Wrapped,
}

impl ScheduleFreeSgd {
    /// The learning rate is in two places.
    fn share(&mut self) {
        let rate = warmed_up(&self.learning_rate, self.warmup_steps);
        self.wrapped.chain.0.1.learning_rate.clone_from(&rate);
        self.wrapped.chain.1.learning_rate = rate;
    }

    /// Sets the learning rate.
    pub fn learning_rate(mut self, learning_rate: impl Into<Hyperparam>) -> Self {
        self.learning_rate = learning_rate.into();
        self.share();
        self
    }

    /// Sets how many steps the learning rate takes up from 0; `None` for none.
    pub fn warmup_steps(mut self, warmup_steps: impl Into<Option<u64>>) -> Self {
        self.warmup_steps = warmup_steps.into();
        self.share();
        self
    }

    /// Sets how much of the average is in the parameters that are trained, in `(0, 1]`.
    pub fn b1(mut self, b1: impl Into<Hyperparam>) -> Self {
        self.wrapped.chain.1.b1 = b1.into();
        self
    }

    /// Sets the decay of the weights for each unit of learning rate.
    pub fn weight_decay(mut self, weight_decay: impl Into<Hyperparam>) -> Self {
        self.wrapped.chain.0.0.weight_decay = weight_decay.into();
        self
    }

    /// Sets the power of the learning rate that a step's weight is.
    pub fn weight_lr_power(mut self, weight_lr_power: impl Into<Hyperparam>) -> Self {
        self.wrapped.chain.1.weight_lr_power = weight_lr_power.into();
        self
    }

    /// Sets the type of the parameters in the state; by default the one that arithmetic is done in.
    pub fn state_dtype(mut self, state_dtype: impl Into<Option<DType>>) -> Self {
        self.wrapped.chain.1.state_dtype = state_dtype.into();
        self
    }
}

impl Arguments for ScheduleFreeSgd {
    const NAME: &'static str = "schedule_free_sgd";

    fn arguments(&mut self, visit: &mut dyn FnMut(&'static str, Argument<'_>)) {
        let ((decay, _), interpolate) = &mut self.wrapped.chain;
        visit("learning_rate", Argument::Hyperparam(&mut self.learning_rate));
        visit("b1", Argument::Hyperparam(&mut interpolate.b1));
        visit("weight_decay", Argument::Hyperparam(&mut decay.weight_decay));
        visit("weight_lr_power", Argument::Hyperparam(&mut interpolate.weight_lr_power));
        visit("warmup_steps", Argument::Static(&self.warmup_steps));
        visit("state_dtype", Argument::Static(&interpolate.state_dtype));
        // What was visited may have been set.
        self.share();
    }
}

crate::engine::delegate_stage!(ScheduleFreeSgd => wrapped: Wrapped);
