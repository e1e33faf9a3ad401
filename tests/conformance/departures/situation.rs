//! Conditions on a case's course.

use serde::Deserialize;
use serde_json::Value;

use super::super::reference;
use super::super::transform::{Seen, Step, Transform};
use super::super::tree::{self, Leaves};

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Situation {
    /// Optax's update has another dtype than the parameter.
    UpdateOfAnotherType,
    /// A gradient that is not finite was accumulated.
    NotFiniteAccumulated,
    /// A window's loss differs from its last mini-step's.
    LossesDiffer,
    ScheduledHyperparameterSet,
    Skipped,
    /// A `sam` with rounds of one step.
    RoundsOfOne,
    /// Gradients are finite, and the sum of squares overflows their dtype.
    SquaresOverflow,
    /// Parameters and gradients that were not skipped are finite, and Optax's update is not, before ours have NaN.
    FiniteBecomesNotFinite,
    /// Optax has a nonzero update where ours are all zero.
    EmitsNothing,
    /// Optax's updates are all zero, and ours change nothing.
    UpdatesVanish,
    /// The first step's gradients are all zero.
    NoGradientAtFirst,
    /// Optax's estimate of the distance is NaN, but unused.
    EstimatedFromNothing,
    /// Training uses no such number.
    NoHyperparameter,
    /// Measured values are finite; Optax's measurement is not.
    MeasureOverflows,
}
impl Situation {
    pub(super) fn holds(self, case: &Transform, found: &[Seen]) -> bool {
        match self {
            Situation::UpdateOfAnotherType => case.steps.iter().any(|step| of_another_type(case, &step.expected)),
            Situation::NotFiniteAccumulated => {
                reference::windows(case).is_some_and(|windows| windows.poisoned.is_some())
            }
            Situation::LossesDiffer => reference::windows(case).is_some_and(|windows| windows.averaged.is_some()),
            Situation::ScheduledHyperparameterSet => {
                case.steps.iter().any(|step| step.set_hyperparams.keys().any(|name| scheduled(&case.config, name)))
            }
            Situation::SquaresOverflow => case.steps.iter().any(|step| squares_overflow(&step.grads)),
            Situation::FiniteBecomesNotFinite => {
                let all = |leaves: &Leaves, is: fn(&f64) -> bool| leaves.values().flat_map(|leaf| &leaf.data).all(is);
                let finite = |leaves: &Leaves| all(leaves, |x| x.is_finite());
                let sound = |(step, found): &(&Step, &Seen)| {
                    (finite(&step.grads) || found.skipped) && all(&found.updates, |x| !x.is_nan())
                };
                finite(&case.params)
                    && case.steps.iter().zip(found).take_while(sound).any(|(step, _)| !finite(&step.expected.updates))
            }
            Situation::UpdatesVanish => case.steps.iter().zip(found).all(|(step, found)| {
                let still =
                    [&step.expected.params, &found.params].into_iter().all(|params| tree::same(params, &case.params));
                still && all_zero(&step.expected.updates)
            }),
            Situation::EmitsNothing => case
                .steps
                .iter()
                .zip(found)
                .any(|(step, found)| all_zero(&found.updates) && !all_zero(&step.expected.updates)),
            Situation::EstimatedFromNothing => case.steps.iter().all(|step| {
                let updates = step.expected.updates.values().flat_map(|leaf| &leaf.data);
                step.expected.flags.get("estim_lr").is_some_and(|estimate| estimate == "nan")
                    && updates.chain(step.grads.values().flat_map(|leaf| &leaf.data)).all(|x| x.is_finite())
            }),
            Situation::MeasureOverflows => case.steps.iter().zip(found).any(|(step, found)| {
                let infinite = |(name, x): (&String, &f64)| {
                    x.is_infinite() && found.measurements.get(name).is_some_and(|found| found.is_finite())
                };
                step.expected.measurements.iter().any(infinite)
            }),
            Situation::NoHyperparameter => case
                .steps
                .iter()
                .any(|step| NO_HYPERPARAMETERS.iter().any(|name| step.expected.hyperparams.contains_key(*name))),
            Situation::NoGradientAtFirst => case.steps.first().is_some_and(|step| all_zero(&step.grads)),
            Situation::RoundsOfOne => case.config["sam"]["sync_period"] == 1,
            Situation::Skipped => found.iter().any(|seen| seen.skipped),
        }
    }
}

/// Functions that Optax's `inject_hyperparams` takes for numbers.
pub(super) const NO_HYPERPARAMETERS: [&str; 2] = ["clip_value_fn", "print_win_rate_every_n_steps"];

fn squares_overflow(grads: &Leaves) -> bool {
    let finite = grads.values().flat_map(|leaf| &leaf.data).all(|g| g.is_finite());
    let overflows = |dtype| {
        let leaves = grads.values().filter(|leaf| leaf.dtype == dtype);
        let sum = leaves.flat_map(|leaf| &leaf.data).fold(0.0, |sum, g| tree::round(dtype, sum + g * g));
        sum.is_infinite()
    };
    finite && grads.values().any(|leaf| overflows(leaf.dtype))
}

fn of_another_type(case: &Transform, seen: &Seen) -> bool {
    seen.updates.iter().any(|(path, update)| update.dtype != case.params[path].dtype)
}

pub(super) fn all_zero(leaves: &Leaves) -> bool {
    leaves.values().flat_map(|leaf| &leaf.data).all(|g| *g == 0.0)
}

pub(super) fn scheduled(config: &Value, name: &str) -> bool {
    let given = |args: &Value| args.get(name).is_some_and(|value| value.get("schedule").is_some());
    match config {
        Value::Object(map) => map.iter().any(|(key, value)| {
            let inner = || value["inner"].as_object().is_some_and(|inner| inner.values().any(given));
            key == "inject_hyperparams" && inner() || scheduled(value, name)
        }),
        Value::Array(values) => values.iter().any(|value| scheduled(value, name)),
        _ => false,
    }
}
