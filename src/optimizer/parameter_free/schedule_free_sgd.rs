use super::warm_up::warmed_up;
use crate::part::prelude::*;
use crate::transform::{AddDecayedWeights, ScaleByLearningRate, add_decayed_weights, scale_by_learning_rate};
use crate::wrapper::{ScheduleFree, schedule_free};

/// Gradient descent with iterate averaging, by [`schedule_free`]: no schedule, only a warm-up.
///
/// Evaluate with [`eval_params`](crate::OptState::eval_params), not with the trained parameters.
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
/// One float of state per parameter; one pass.
///
/// # Errors
///
/// `init` fails if an argument is out of the range that [`schedule_free`] gives.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::optimizer::schedule_free_sgd;
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
/// [`contrib.schedule_free_sgd`](https://optax.readthedocs.io/en/latest/api/contrib.html). Differs: a `learning_rate`
/// may be a schedule even with a warm-up, and 0 `warmup_steps` disable it, where Optax's rate stays 0.
pub fn schedule_free_sgd() -> ScheduleFreeSgd {
    let base = (add_decayed_weights(0.0), scale_by_learning_rate(1.0));
    ScheduleFreeSgd { learning_rate: 1.0.into(), warmup_steps: None, chain: schedule_free(base, 1.0) }
}

optimizer! {
    /// See [`schedule_free_sgd`](schedule_free_sgd()).
    ScheduleFreeSgd as "schedule_free_sgd" = ScheduleFree<(AddDecayedWeights, ScaleByLearningRate)>, beside {
        learning_rate: Hyperparam,
        warmup_steps: Option<u64>
    } {
        hyperparams:
            learning_rate [.learning_rate] "Sets the learning rate.",
            b1 [chain.1.b1] "Sets the weight of the average in the trained parameters, in `(0, 1]`.",
            weight_decay [chain.0.0.weight_decay] "Sets the decoupled weight decay, multiplied by the learning rate.",
            weight_lr_power [chain.1.weight_lr_power] "Sets the exponent of the learning rate in the weight of each step.";
        options:
            warmup_steps: Option<u64> [.warmup_steps]
                "Sets the number of warm-up steps from a learning rate of 0; `None` for none.",
            state_dtype: Option<DType> [chain.1.state_dtype]
                "Sets the dtype of the parameters in the state; by default the compute type.";
        then share;
    }
}

impl ScheduleFreeSgd {
    /// Copies the learning rate to both places.
    fn share(&mut self) {
        let rate = warmed_up(&self.learning_rate, self.warmup_steps);
        let (base, interpolate) = &mut self.chain.chain;
        base.1.learning_rate.clone_from(&rate);
        interpolate.learning_rate = rate;
    }
}
