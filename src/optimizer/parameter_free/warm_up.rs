//! Learning rates with a warm-up, for optimizers with an argument for it.

use crate::schedule::{Hyperparam, Schedule, from_fn, warmup_constant};

/// Returns a linear warm-up from 0 over `steps` steps, towards the learning rate at each step.
pub(super) fn warmed_up(learning_rate: &Hyperparam, steps: Option<u64>) -> Hyperparam {
    match (learning_rate, steps.filter(|steps| *steps > 0)) {
        (_, None) => learning_rate.clone(),
        (Hyperparam::Number(peak), Some(steps)) => Schedule::from(warmup_constant(0.0, *peak, steps)).into(),
        (_, Some(steps)) => {
            let learning_rate = learning_rate.clone();
            let value = move |count| Schedule::from(warmup_constant(0.0, learning_rate.at(count), steps)).at(count);
            Schedule::from(from_fn("warmed_up", value)).into()
        }
    }
}
