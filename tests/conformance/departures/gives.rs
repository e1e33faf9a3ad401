//! Values expected in place of Optax's.

use std::collections::BTreeMap;

use gradchain::DType;
use serde::Deserialize;
use serde_json::Value;

use super::super::reference;
use super::super::transform::{self, Seen, Transform};
use super::super::tree::{Leaf, Slack};
use super::situation::{NO_HYPERPARAMETERS, all_zero, scheduled};
use super::uses;

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Gives {
    /// Optax's update, rounded to the parameter's dtype.
    ///
    /// Parameters may be off by that rounding, or by Optax's if its update is narrower.
    RoundedUpdates,
    /// Ours with all-zero gradients replaced by tiny ones.
    SameWithSmallGradients,
    /// Ours for the same numbers as `f32`; parameters are rounded after every step.
    SameInF32,
    /// The same for `f64`.
    SameInF64,
    /// From the step with that gradient or loss on, ours for each window's mean.
    ///
    /// Nothing is emitted before the window is full.
    WindowsApart,
    /// The naive version's result.
    NaiveVersion,
    /// Infinite measured norms are those of `f64` gradients; the rest is Optax's.
    MeasuredInF64,
    /// The config's initial estimate; the rest is Optax's.
    FirstEstimate,
    /// Without the hyperparameter; the rest is Optax's.
    WithoutHyperparameter,
    /// Setting is refused with the reason; the rest is Optax's.
    Refusal,
    /// The inner optimizer's alone.
    OptimizerAlone,
    /// An update was emitted if its count has increased; the rest is Optax's.
    EmittedIfCounted,
}
impl Gives {
    pub(super) fn put(self, case: &Transform, found: &[Seen], expected: &mut [Seen]) {
        match self {
            Gives::RoundedUpdates => rounded_updates(case, expected),
            Gives::SameWithSmallGradients => same_with_small_gradients(case, expected),
            Gives::SameInF32 => same_in(DType::F32, case, expected),
            Gives::SameInF64 => same_in(DType::F64, case, expected),
            Gives::WindowsApart => {
                let Some(windows) = reference::windows(case) else { return };
                let first = [windows.poisoned, windows.averaged].into_iter().flatten().min().unwrap_or(expected.len());
                for (expected, right) in expected.iter_mut().zip(windows.seen).skip(first) {
                    expected.updates = right.updates;
                    expected.params = right.params;
                    for (name, value) in &mut expected.flags {
                        *value = right.flags.get(name).cloned().unwrap_or_default();
                    }
                }
            }
            Gives::NaiveVersion => naive_version(case, expected),
            Gives::MeasuredInF64 => {
                let Ok(wide) = transform::observe_in(case, Some(DType::F64)) else { return };
                for (expected, wide) in expected.iter_mut().zip(wide) {
                    for (name, measured) in expected.measurements.iter_mut().filter(|(_, x)| x.is_infinite()) {
                        *measured = wide.measurements.get(name).copied().unwrap_or(f64::NAN);
                    }
                }
            }
            Gives::FirstEstimate => {
                for expected in expected {
                    expected.flags.extend(first_estimate(&case.config).map(|first| ("estim_lr".into(), first.into())));
                }
            }
            Gives::WithoutHyperparameter => {
                for expected in expected {
                    expected.hyperparams.retain(|name, _| !NO_HYPERPARAMETERS.contains(&&**name));
                }
            }
            Gives::Refusal => {
                for (step, (expected, found)) in case.steps.iter().zip(expected.iter_mut().zip(found)) {
                    let names = step.set_hyperparams.keys().filter(|name| scheduled(&case.config, name));
                    // The message must name the reason.
                    let refusals = names.map(|name| {
                        let said = found.refusals.get(name).filter(|said| said.contains("is given by a schedule"));
                        (name.clone(), said.cloned().unwrap_or_else(|| "a refusal".into()))
                    });
                    expected.refusals = refusals.collect::<BTreeMap<_, _>>();
                }
            }
            Gives::OptimizerAlone => {
                let config = case.config["sam"]["optimizer"].clone();
                let Ok(alone) = transform::observe(&Transform { config, ..case.clone() }) else { return };
                for (expected, alone) in expected.iter_mut().zip(alone) {
                    (expected.updates, expected.params) = (alone.updates, alone.params);
                }
            }
            Gives::EmittedIfCounted => {
                let mut before = 0;
                for expected in expected {
                    let after = expected.flags.get("gradient_step").and_then(Value::as_u64).unwrap_or(before);
                    if let Some(emitted) = expected.flags.get_mut("has_updated") {
                        *emitted = (after > before).into();
                    }
                    before = after;
                }
            }
        }
    }
}

/// Rounds an update to its parameter's dtype, which may move it one step of that dtype.
///
/// The parameter, where the sum is rounded again, may be off by one more; steps add up.
fn rounded_updates(case: &Transform, expected: &mut [Seen]) {
    let mut slack = Slack::new();
    for seen in expected {
        for (path, leaf) in seen.eval_params.iter_mut().flatten() {
            leaf.round(case.params[path].dtype);
        }
        for (path, update) in &mut seen.updates {
            let dtype = case.params[path].dtype;
            if update.dtype != dtype {
                let mut off = update.clone();
                if dtype.size() < update.dtype.size() {
                    off.round(dtype);
                }
                update.round(dtype);
                allow_a_step(path, [&seen.params[path], &off], &mut slack, &mut seen.slack);
                if case.is_lookahead() {
                    // At a synchronization it is the difference of two parameters.
                    seen.slack[1].insert(path.clone(), slack[path].clone());
                }
            }
        }
    }
}

/// Accepts everything between both results if rounding decides.
fn naive_version(case: &Transform, expected: &mut [Seen]) {
    let [Some(naive), Some(less), Some(more)] = [0.0, -1.0, 1.0].map(|lean| reference::leaning(case, lean)) else {
        return;
    };
    let between = less.seen.iter().zip(&more.seen);
    let mut sum = Slack::new();
    for ((expected, right), (less, more)) in expected.iter_mut().zip(naive.seen).zip(between) {
        for (path, leaf) in &right.updates {
            let pairs = less.updates[path].data.iter().zip(&more.updates[path].data);
            let off: Vec<_> = pairs.map(|(less, more)| (less - more).abs()).collect();
            let sum = sum.entry(path.clone()).or_insert_with(|| vec![0.0; leaf.data.len()]);
            sum.iter_mut().zip(&off).for_each(|(sum, off)| *sum += off);
            expected.slack[0].insert(path.clone(), sum.clone());
            expected.slack[1].insert(path.clone(), off);
        }
        for name in ["plateau_scale", "plateau_count", "cooldown_count", "best_value"] {
            if let (Some(flag), Some(right)) = (expected.flags.get_mut(name), right.flags.get(name)) {
                *flag = right.clone();
            }
        }
        (expected.updates, expected.params) = (right.updates, right.params);
        expected.updates.iter_mut().for_each(|(path, update)| update.round(case.params[path].dtype));
    }
}

fn first_estimate(config: &Value) -> Option<f64> {
    match config {
        Value::Object(map) => map.iter().find_map(|(name, value)| match &**name {
            "dadapt_adamw" | "prodigy" => value.get("estim_lr0").map_or(Some(1e-6), Value::as_f64),
            _ => first_estimate(value),
        }),
        Value::Array(values) => values.iter().find_map(first_estimate),
        _ => None,
    }
}

fn same_with_small_gradients(case: &Transform, expected: &mut [Seen]) {
    let mut small = case.clone();
    for step in small.steps.iter_mut().filter(|step| all_zero(&step.grads)) {
        step.grads.values_mut().flat_map(|leaf| &mut leaf.data).for_each(|g| *g = 1e-20);
    }
    let Ok(small) = transform::observe(&small) else { return };
    for (seen, small) in expected.iter_mut().zip(small) {
        (seen.updates, seen.params) = (small.updates, small.params);
        let little = |(path, leaf): (&String, &Leaf)| (path.clone(), vec![1e-12; leaf.data.len()]);
        seen.slack = [&seen.params, &seen.updates].map(|leaves| leaves.iter().map(little).collect());
        for (name, value) in &mut seen.flags {
            *value = small.flags.get(name).cloned().unwrap_or_default();
        }
    }
}

fn same_in(dtype: DType, case: &Transform, expected: &mut [Seen]) {
    let Ok(wide) = transform::observe_in(case, Some(dtype)) else { return };
    let (mut slack, to_points) = (Slack::new(), goes_to_points(&case.config));
    for (seen, wide) in expected.iter_mut().zip(wide) {
        (seen.updates, seen.params) = (wide.updates, wide.params);
        seen.eval_params = seen.eval_params.take().and(wide.eval_params);
        // Counters are Optax's.
        for (name, value) in &mut seen.flags {
            if value.is_string() {
                *value = wide.flags.get(name).cloned().unwrap_or_default();
            }
        }
        for (path, update) in &seen.updates {
            let before = slack.get(path).cloned();
            allow_a_step(path, [&seen.params[path], update], &mut slack, &mut seen.slack);
            // The update compensates the previous error.
            if let (true, Some(before), Some(off)) = (to_points, before, seen.slack[1].get_mut(path)) {
                off.iter_mut().zip(before).for_each(|(off, before)| *off += before);
            }
        }
    }
}

/// Returns true if updates lead to points computed without the parameters.
fn goes_to_points(config: &Value) -> bool {
    ["mechanize", "sam", "schedule_free", "schedule_free_adamw", "schedule_free_sgd"]
        .iter()
        .any(|name| uses(config, name))
}

/// Allows one step of an update's dtype, and the sum so far for a parameter.
fn allow_a_step(path: &str, [param, update]: [&Leaf; 2], sum: &mut Slack, slack: &mut [Slack; 2]) {
    let [params, updates] = [param, update].map(Leaf::steps);
    let sum = sum.entry(path.into()).or_insert_with(|| vec![0.0; updates.len()]);
    sum.iter_mut().zip(params.iter().zip(&updates)).for_each(|(sum, (p, u))| *sum += p + u);
    slack[0].insert(path.into(), sum.clone());
    slack[1].insert(path.into(), updates);
}
