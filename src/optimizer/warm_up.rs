//! A learning rate that warms up, for optimizers that have one argument for that.

use crate::schedule::{Hyperparam, Schedule, from_fn, warmup_constant};

/// The learning rate with a warm-up from 0 in so many steps in front of it; a schedule is multiplied by that.
pub(super) fn warmed_up(learning_rate: &Hyperparam, steps: Option<u64>) -> Hyperparam {
    match (learning_rate, steps.filter(|steps| *steps > 0)) {
        (_, None) => learning_rate.clone(),
        (Hyperparam::Number(rate), Some(steps)) => Schedule::from(warmup_constant(0.0, *rate, steps)).into(),
        (Hyperparam::Schedule(schedule), Some(steps)) => {
            let (schedule, line) = (schedule.clone(), Schedule::from(warmup_constant(0.0, 1.0, steps)));
            Schedule::from(from_fn("warmed_up", move |count| line.at(count) * schedule.at(count))).into()
        }
    }
}
