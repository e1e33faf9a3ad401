//! Where this crate and Optax differ on purpose: rules, read from `departures.toml`, and what each puts in the place of
//! what Optax recorded.

use std::collections::BTreeMap;

use gradchain::DType;
use serde::Deserialize;
use serde_json::Value;

use super::transform::{self, Seen, Step, Transform};
use super::tree::{self, Leaf, Leaves, Slack};
use super::{Verdict, projection, reference};

/// All rules, by the kind of case that they are for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Departures {
    transform: Vec<Rule<When, Gives>>,
    pub(crate) projection: Vec<Rule<projection::When, projection::Gives>>,
}

/// One way to differ: in which cases, what is right instead, and why.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rule<When, Gives> {
    pub(crate) name: String,
    reason: String,
    pub(crate) when: When,
    pub(crate) gives: Gives,
}

/// What must be true of a case, all of it.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct When {
    /// Names of transformations and arguments that the config has somewhere, all of them.
    uses: Vec<String>,
    /// Names of which the config has one.
    uses_any: Vec<String>,
    /// Some parameter has one of these types.
    parameters: Vec<String>,
    situation: Option<Situation>,
}

/// What must have happened in a case.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Situation {
    /// Optax's update of a leaf is not of the parameter's type.
    UpdateOfAnotherType,
    /// A gradient that is not finite was accumulated.
    NotFiniteAccumulated,
    /// The loss of a window of mini-steps is not that of the last of them.
    LossesDiffer,
    /// A hyperparameter that is given by a schedule is set.
    ScheduledHyperparameterSet,
    /// Gradients were thrown away.
    Skipped,
    /// The config is a `sam` whose rounds have one step.
    RoundsOfOne,
    /// The gradients are finite, and the sum of their squares is not in their type.
    SquaresOverflow,
    /// Parameters are finite, and so are gradients but for those that were thrown away, and Optax's updates are not all
    /// finite before ours have a NaN.
    FiniteBecomesNotFinite,
    /// All of Optax's updates are zero, and ours change no parameter either.
    UpdatesVanish,
    /// All gradients of the first step are zero.
    NoGradientAtFirst,
    /// Optax's estimate of the distance is NaN and no update is: none is made of it.
    EstimatedFromNothing,
    /// Something that is no number to train with is among the hyperparameters.
    NoHyperparameter,
    /// All is finite that is measured, and what Optax measures is not.
    MeasureOverflows,
}

/// What is expected instead.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Gives {
    /// Optax's update rounded to the parameter's type; parameters may be off by that rounding, or by Optax's if its update
    /// is of a narrower type.
    RoundedUpdates,
    /// What this crate gives if gradients that are all zero are nearly zero instead.
    SameWithSmallGradients,
    /// What this crate gives for the same numbers as `f32`, rounded; parameters are rounded after every step.
    SameInF32,
    /// The same for `f64`.
    SameInF64,
    /// From the step with that gradient or loss on: what the transformation inside gives for the mean of each window alone,
    /// and nothing before the window is full.
    WindowsApart,
    /// What the naive version of the transformation gives, in every step.
    NaiveVersion,
    /// Measured norms that are infinite are what they are for the same gradients as `f64`. All else is Optax's.
    MeasuredInF64,
    /// The estimate is the one that the config starts from. All else is Optax's.
    FirstEstimate,
    /// There is no such hyperparameter. All else is Optax's.
    WithoutHyperparameter,
    /// Setting is refused, with a message that says why. All numbers are Optax's.
    Refusal,
    /// What the optimizer inside gives alone.
    OptimizerAlone,
    /// An update was emitted if the count of them has gone up in this step. All else is Optax's.
    EmittedIfCounted,
}

impl Departures {
    /// The rules kept with the project.
    pub(crate) fn kept() -> Departures {
        toml::from_str(include_str!("departures.toml")).expect("departures.toml is well formed")
    }

    /// Names and reasons.
    pub(crate) fn rules(&self) -> impl Iterator<Item = (&str, &str)> {
        let transform = self.transform.iter().map(|rule| (&*rule.name, &*rule.reason));
        transform.chain(self.projection.iter().map(|rule| (&*rule.name, &*rule.reason)))
    }

    /// Whether what was found is what some rules give in the place of what Optax recorded. As few rules as possible.
    pub(crate) fn judge(&self, case: &Transform, found: &[Seen], difference: String) -> Verdict {
        let matching: Vec<_> = self.transform.iter().filter(|rule| rule.when.holds(case, found)).collect();
        let mut sets: Vec<u32> = (1..1 << matching.len()).collect();
        sets.sort_by_key(|set| set.count_ones());
        let mut last = String::new();
        for set in sets {
            let chosen: Vec<_> = (0..matching.len()).filter(|i| set & (1 << i) != 0).map(|i| matching[i]).collect();
            let mut expected = case.expected();
            chosen.iter().for_each(|rule| rule.gives.put(case, found, &mut expected));
            match case.compare(&expected, found) {
                Ok(()) => return Verdict::Departed(chosen.iter().map(|rule| rule.name.clone()).collect()),
                Err(difference) => last = difference,
            }
        }
        let names: Vec<_> = matching.iter().map(|rule| &*rule.name).collect();
        let also = if names.is_empty() { String::new() } else { format!("; with {}: {last}", names.join(", ")) };
        Verdict::Failed(difference + &also)
    }
}

impl When {
    fn holds(&self, case: &Transform, found: &[Seen]) -> bool {
        let types = |leaf: &Leaf| self.parameters.iter().any(|name| leaf.dtype.name() == name);
        self.uses.iter().all(|name| uses(&case.config, name))
            && (self.uses_any.is_empty() || self.uses_any.iter().any(|name| uses(&case.config, name)))
            && (self.parameters.is_empty() || case.params.values().any(types))
            && self.situation.is_none_or(|situation| situation.holds(case, found))
    }
}

/// Whether a name is a key anywhere, or a value.
fn uses(config: &Value, name: &str) -> bool {
    match config {
        Value::Object(map) => map.iter().any(|(key, value)| key == name && !value.is_null() || uses(value, name)),
        Value::Array(values) => values.iter().any(|value| uses(value, name)),
        Value::String(value) => value == name,
        _ => false,
    }
}

impl Situation {
    fn holds(self, case: &Transform, found: &[Seen]) -> bool {
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

/// Functions of the step, and how often something is printed, which `inject_hyperparams` of Optax takes for numbers.
const NO_HYPERPARAMETERS: [&str; 2] = ["clip_value_fn", "print_win_rate_every_n_steps"];

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

fn all_zero(leaves: &Leaves) -> bool {
    leaves.values().flat_map(|leaf| &leaf.data).all(|g| *g == 0.0)
}

/// Whether an argument of this name is given by a schedule, inside `inject_hyperparams`.
fn scheduled(config: &Value, name: &str) -> bool {
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

impl Gives {
    /// Puts what is right in the place of what Optax recorded.
    fn put(self, case: &Transform, found: &[Seen], expected: &mut [Seen]) {
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
                    // The message is ours to choose, but must name the reason.
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

/// An update is rounded to its parameter's type, which may put it one step of that type away from the expected one, and
/// the parameter, where the sum is rounded again, one more; steps add up.
fn rounded_updates(case: &Transform, expected: &mut [Seen]) {
    let mut slack = Slack::new();
    for seen in expected {
        for (path, leaf) in seen.eval_params.iter_mut().flatten() {
            leaf.round(case.params[path].dtype);
        }
        for (path, update) in &mut seen.updates {
            let dtype = case.params[path].dtype;
            if update.dtype != dtype {
                // Of the narrower type.
                let mut off = update.clone();
                if dtype.size() < update.dtype.size() {
                    off.round(dtype);
                }
                update.round(dtype);
                allow_a_step(path, [&seen.params[path], &off], &mut slack, &mut seen.slack);
                if case.is_lookahead() {
                    // It is the difference of two parameters, where they synchronize.
                    seen.slack[1].insert(path.clone(), slack[path].clone());
                }
            }
        }
    }
}

/// Where rounding decides, whatever lies between what is found if it goes one way and the other.
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

/// What the estimate of the one transformation that has such starts from.
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
        // What small gradients do.
        let little = |(path, leaf): (&String, &Leaf)| (path.clone(), vec![1e-12; leaf.data.len()]);
        seen.slack = [&seen.params, &seen.updates].map(|leaves| leaves.iter().map(little).collect());
        for (name, value) in &mut seen.flags {
            *value = small.flags.get(name).cloned().unwrap_or_default();
        }
    }
}

/// What is given for the same numbers in a wider type.
fn same_in(dtype: DType, case: &Transform, expected: &mut [Seen]) {
    let Ok(wide) = transform::observe_in(case, Some(dtype)) else { return };
    let (mut slack, to_points) = (Slack::new(), goes_to_points(&case.config));
    for (seen, wide) in expected.iter_mut().zip(wide) {
        (seen.updates, seen.params) = (wide.updates, wide.params);
        seen.eval_params = seen.eval_params.take().and(wide.eval_params);
        // What is not finite in Optax; counters are Optax's.
        for (name, value) in &mut seen.flags {
            if value.is_string() {
                *value = wide.flags.get(name).cloned().unwrap_or_default();
            }
        }
        for (path, update) in &seen.updates {
            let before = slack.get(path).cloned();
            allow_a_step(path, [&seen.params[path], update], &mut slack, &mut seen.slack);
            // It takes back by how much the parameter was off before.
            if let (true, Some(before), Some(off)) = (to_points, before, seen.slack[1].get_mut(path)) {
                off.iter_mut().zip(before).for_each(|(off, before)| *off += before);
            }
        }
    }
}

/// Whether updates go to points that are worked out without the parameters.
fn goes_to_points(config: &Value) -> bool {
    ["mechanize", "sam", "schedule_free", "schedule_free_adamw", "schedule_free_sgd"]
        .iter()
        .any(|name| uses(config, name))
}

/// Lets an update be off by one step of its type, and a parameter by what has added up.
fn allow_a_step(path: &str, [param, update]: [&Leaf; 2], sum: &mut Slack, slack: &mut [Slack; 2]) {
    let [params, updates] = [param, update].map(Leaf::steps);
    let sum = sum.entry(path.into()).or_insert_with(|| vec![0.0; updates.len()]);
    sum.iter_mut().zip(params.iter().zip(&updates)).for_each(|(sum, (p, u))| *sum += p + u);
    slack[0].insert(path.into(), sum.clone());
    slack[1].insert(path.into(), updates);
}
