//! Cases of transformations: inputs, expected and actual results.

use std::collections::BTreeMap;

use gradchain::prelude::*;
use gradchain::state::{Entry, EntryMut, State, StateWalk, StateWalkMut, same_bits};
use gradchain::transform::measurements;
use gradchain::wrapper::{allow, injected_hyperparams};
use gradchain::{DType, OptState, WarningKind, config, extra, needs};
use serde_json::Value;

use super::tree::{self, Leaf, Leaves, Slack, Tolerance};

#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) grads: Leaves,
    /// NaN in cases without a loss, so that any use shows.
    pub(crate) value: f64,
    pub(crate) set_hyperparams: BTreeMap<String, f64>,
    pub(crate) expected: Seen,
}

/// A step's result, expected or actual.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) updates: Leaves,
    pub(crate) params: Leaves,
    pub(crate) hyperparams: BTreeMap<String, f64>,
    pub(crate) flags: BTreeMap<String, Value>,
    pub(crate) measurements: BTreeMap<String, f64>,
    /// The evaluation parameters, if any.
    pub(crate) eval_params: Option<Leaves>,
    /// The reasons for refused hyperparameters.
    pub(crate) refusals: BTreeMap<String, String>,
    /// Actual results only.
    pub(crate) skipped: bool,
    /// Additional tolerances of each parameter and update, in departures.
    pub(crate) slack: [Slack; 2],
}

#[derive(Clone, Debug)]
pub(crate) struct Transform {
    pub(crate) config: Value,
    pub(crate) params: Leaves,
    pub(crate) steps: Vec<Step>,
    pub(crate) tolerance: Tolerance,
}

impl Transform {
    pub(crate) fn read(case: &Value) -> Result<Transform, String> {
        let steps = case["steps"].as_array().ok_or("a case without `steps`")?;
        Ok(Transform {
            config: case["config"].clone(),
            params: tree::read(&case["params"])?,
            steps: steps.iter().map(Step::read).collect::<Result<_, _>>()?,
            tolerance: Tolerance::read(case)?,
        })
    }

    /// Returns true for `lookahead`, which has two trees in one.
    pub(crate) fn is_lookahead(&self) -> bool {
        self.config.get("lookahead").is_some()
    }

    pub(crate) fn fast_params(&self) -> Leaves {
        if self.is_lookahead() { under("fast/", &self.params) } else { self.params.clone() }
    }

    pub(crate) fn leaves(&self) -> impl Iterator<Item = &Leaf> {
        let steps = self.steps.iter().flat_map(|step| step.grads.values().chain(step.expected.updates.values()));
        self.params.values().chain(steps)
    }

    /// Compares actual with expected results, step by step.
    pub(crate) fn compare(&self, expected: &[Seen], found: &[Seen]) -> Result<(), String> {
        for (step, (expected, found)) in expected.iter().zip(found).enumerate() {
            expected.compare(found, self.tolerance).map_err(|difference| format!("step {step}: {difference}"))?;
        }
        Ok(())
    }

    pub(crate) fn expected(&self) -> Vec<Seen> {
        self.steps.iter().map(|step| step.expected.clone()).collect()
    }
}

impl Step {
    fn read(step: &Value) -> Result<Step, String> {
        let map = |name: &str| step[name].as_object().cloned().unwrap_or_default();
        let numbers = |name: &str| -> Result<BTreeMap<String, f64>, String> {
            map(name).iter().map(|(name, value)| Ok((name.clone(), tree::number(value)?))).collect()
        };
        let expected = Seen {
            updates: tree::read(&step["expected_updates"])?,
            params: tree::read(&step["expected_params"])?,
            hyperparams: numbers("expected_hyperparams")?,
            flags: map("expected_flags").into_iter().collect(),
            measurements: numbers("expected_measurements")?,
            eval_params: step.get("expected_eval_params").map(tree::read).transpose()?,
            ..Seen::default()
        };
        let value = step.get("value").map_or(Ok(f64::NAN), tree::number)?;
        Ok(Step { grads: tree::read(&step["grads"])?, value, set_hyperparams: numbers("set_hyperparams")?, expected })
    }
}

impl Seen {
    fn compare(&self, found: &Seen, tolerance: Tolerance) -> Result<(), String> {
        let [of_params, of_updates] = &self.slack;
        tolerance.compare("update", &self.updates, &found.updates, of_updates)?;
        tolerance.compare("parameter", &self.params, &found.params, of_params)?;
        for (name, expected) in &self.hyperparams {
            match found.hyperparams.get(name) {
                Some(found) if tolerance.agrees(*expected, *found) => {}
                found => return Err(format!("hyperparameter `{name}`: expected {expected:?}, found {found:?}")),
            }
        }
        for (name, expected) in &self.measurements {
            match found.measurements.get(name) {
                Some(found) if tolerance.agrees(*expected, *found) => {}
                found => return Err(format!("measurement `{name}`: expected {expected:?}, found {found:?}")),
            }
        }
        for (name, expected) in &self.flags {
            let found = found.flags.get(name);
            if !found.is_some_and(|found| same_flag(expected, found, tolerance)) {
                let found = found.map_or("none".into(), Value::to_string);
                return Err(format!("flag `{name}`: expected {expected}, found {found}"));
            }
        }
        if let Some(expected) = &self.eval_params {
            let found = found.eval_params.as_ref().ok_or("no parameters to evaluate with")?;
            tolerance.compare("evaluation parameter", expected, found, of_params)?;
        }
        if self.refusals != found.refusals {
            return Err(format!("setting hyperparameters: expected {:?}, found {:?}", self.refusals, found.refusals));
        }
        Ok(())
    }
}

/// Compares integers and booleans exactly, other numbers within the tolerance.
fn same_flag(expected: &Value, found: &Value, tolerance: Tolerance) -> bool {
    match (tree::number(expected), tree::number(found)) {
        (Ok(e), Ok(f)) if expected.is_u64() => e == f,
        (Ok(e), Ok(f)) => tolerance.agrees(e, f),
        _ => expected == found,
    }
}

/// The reason for an early stop.
pub(crate) enum Stop {
    /// The feature that this build lacks.
    Skipped(String),
    Error(String),
}

pub(crate) fn observe(case: &Transform) -> Result<Vec<Seen>, Stop> {
    observe_in(case, None)
}

/// Runs the case, optionally in another dtype.
///
/// Then updates, and after every step parameters, are rounded to the case's dtypes.
pub(crate) fn observe_in(case: &Transform, dtype: Option<DType>) -> Result<Vec<Seen>, Stop> {
    let wide = |leaves: Leaves| match dtype {
        None => leaves,
        Some(dtype) => leaves.into_iter().map(|(path, leaf)| (path, Leaf { dtype, ..leaf })).collect(),
    };
    if config::is_per_example(&case.config) {
        return observe_per_example(case);
    }
    let built =
        config::build_with::<needs::Value>(&case.config).map_err(|error| Stop::Error(format!("build: {error}")))?;
    // Optax's `adadelta` without a rate climbs; here that must be allowed.
    let optimizer = allow(built, [WarningKind::NegativeRate]);
    let stop = |stage: &str, error: gradchain::Error| Stop::Error(format!("{stage}: {error}"));
    let narrow = case.fast_params();
    let mut params = tree::dynamic(&wide(narrow.clone()));
    let mut state = optimizer.init(&params).map_err(|error| stop("init", error))?;
    let mut slow = case.is_lookahead().then(|| under("slow/", &case.params));
    if let Some(slow) = &slow {
        set_moments(&mut *state, "slow", slow);
    }
    let mut seen = Vec::new();
    for (number, step) in case.steps.iter().enumerate() {
        let stop = |error| stop(&format!("step {number}"), error);
        let mut now = Seen { refusals: set_hyperparams(&mut *state, &step.set_hyperparams), ..Seen::default() };
        let grads = tree::dynamic(&wide(step.grads.clone()));
        let (mut fused_params, mut fused_state) = (params.clone(), state.clone());
        let value = extra::value(step.value);
        let updates = optimizer.update_with(&grads, value, &mut state, &params).map_err(stop)?;
        apply_updates(&mut params, &updates).map_err(stop)?;
        optimizer.step_with(&mut fused_params, &grads, value, &mut fused_state).map_err(stop)?;
        let params_agree = tree::same(&tree::leaves(&params), &tree::leaves(&fused_params));
        if !(params_agree && same_bits(&*state, &*fused_state)) {
            return Err(Stop::Error(format!("step {number}: `step` differs from `update` and `apply_updates`")));
        }
        now.skipped = updates.outcome().skipped();
        now.updates = rounded(tree::leaves(&updates), &narrow);
        now.params = rounded(tree::leaves(&params), &narrow);
        if dtype.is_some() {
            params = tree::dynamic(&wide(now.params.clone()));
        }
        if let Some(before) = &mut slow {
            let after = moments(&state, "slow", before);
            now.updates = join(now.updates, difference(&after, before));
            now.params = join(now.params, after.clone());
            *before = after;
        }
        now.eval_params = state.eval_params(&params).ok().map(|eval| rounded(tree::leaves(&eval), &narrow));
        now.hyperparams = hyperparams(&mut *state);
        let measured = measurements(&*state);
        now.measurements = measured.iter().flat_map(|(_, m)| m.iter()).map(|(name, x)| (name.into(), x)).collect();
        now.flags = fields(&*state, &case.params.keys().cloned().collect::<Vec<_>>());
        now.flags.insert("has_updated".into(), updates.outcome().emitted().into());
        seen.push(now);
    }
    Ok(seen)
}

/// Steps on per-example gradients.
fn observe_per_example(case: &Transform) -> Result<Vec<Seen>, Stop> {
    let error = |stage: &str, error: &dyn std::error::Error| Stop::Error(format!("{stage}: {error}"));
    let optimizer = config::build_per_example::<needs::Nothing>(&case.config).map_err(|e| error("build", &e))?;
    let mut params = tree::dynamic(&case.params);
    let mut state = optimizer.init(&params).map_err(|e| error("init", &e))?;
    let mut seen = Vec::new();
    for (number, step) in case.steps.iter().enumerate() {
        let stop = |e| error(&format!("step {number}"), &e);
        let grads = tree::dynamic(&step.grads);
        let (mut fused_params, mut fused_state) = (params.clone(), state.clone());
        let updates = optimizer.update_per_example(&grads, &mut state, &params).map_err(stop)?;
        apply_updates(&mut params, &updates).map_err(stop)?;
        optimizer.step_per_example(&mut fused_params, &grads, &mut fused_state).map_err(stop)?;
        if !tree::same(&tree::leaves(&params), &tree::leaves(&fused_params)) {
            return Err(Stop::Error(format!("step {number}: a step differs from updates that are applied")));
        }
        seen.push(Seen { updates: tree::leaves(&updates), params: tree::leaves(&params), ..Seen::default() });
    }
    Ok(seen)
}

fn rounded(mut leaves: Leaves, like: &Leaves) -> Leaves {
    leaves.iter_mut().zip(like.values()).for_each(|((_, leaf), like)| leaf.round(like.dtype));
    leaves
}

/// Sets hyperparameters; returns the messages of refusals.
fn set_hyperparams<S: State>(state: &mut S, values: &BTreeMap<String, f64>) -> BTreeMap<String, String> {
    let mut refusals = BTreeMap::new();
    for (_, hyperparams) in injected_hyperparams(state) {
        for (name, value) in values {
            if let Err(error) = hyperparams.set(name, *value) {
                refusals.insert(name.clone(), error.to_string());
            }
        }
    }
    refusals
}

fn hyperparams<S: State>(state: &mut S) -> BTreeMap<String, f64> {
    let found = injected_hyperparams(state);
    found.iter().flat_map(|(_, values)| values.iter()).map(|(name, value)| (name.into(), value)).collect()
}

/// Returns single values of a state, under Optax's names.
pub(crate) fn fields<S: State>(state: &S, paths: &[String]) -> BTreeMap<String, Value> {
    let mut found: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    state.walk(&mut StateWalk::new(&mut |path, entry| {
        let name = path.rsplit('.').next().unwrap_or(path);
        let value = match entry {
            Entry::Count(count) => count.get().into(),
            Entry::Flag(flag) => flag.get().into(),
            Entry::Scalar(scalar) => written(scalar.get()),
            Entry::Flags(flags) => flags
                .iter()
                .filter_map(|(leaf, flag)| Some((paths.get(leaf)?.clone(), Value::Bool(flag.get()))))
                .collect(),
            _ => return,
        };
        for alias in match name {
            "skipped" => &["should_skip"][..],
            "measured" => &["num_not_finite", "norm_squared"],
            "scale" => &["plateau_scale"],
            _ => &[],
        } {
            found.entry((*alias).into()).or_default().push(value.clone());
        }
        found.entry(name.into()).or_default().push(value);
    }));
    found
        .into_iter()
        .filter_map(|(name, mut values)| Some((name, values.pop().filter(|_| values.is_empty())?)))
        .collect()
}

/// Writes NaN and infinities as the cases do: JSON has neither.
fn written(x: f64) -> Value {
    match x {
        x if x.is_nan() => "nan".into(),
        f64::INFINITY => "inf".into(),
        f64::NEG_INFINITY => "-inf".into(),
        x => x.into(),
    }
}

fn set_moments<S: State>(state: &mut S, field: &str, values: &Leaves) {
    state.walk_mut(&mut StateWalkMut::new(&mut |path, entry| {
        let EntryMut::Moments(moments) = entry else { return };
        if path != field {
            return;
        }
        for (i, leaf) in values.values().enumerate() {
            // Row-major here, as the parameters.
            if let Some(data) = moments.get_mut::<f32>(i) {
                data.iter_mut().zip(&leaf.data).for_each(|(to, from)| *to = *from as f32);
            } else if let Some(data) = moments.get_mut::<f64>(i) {
                data.copy_from_slice(&leaf.data);
            }
        }
    }));
}

/// Returns a field's arrays under the paths of `like`.
fn moments<T: gradchain::GradientTransformation>(state: &OptState<T>, field: &str, like: &Leaves) -> Leaves {
    let mut found = Leaves::new();
    state.walk(&mut StateWalk::new(&mut |path, entry| {
        if let (true, Entry::Moments(moments)) = (path == field, entry) {
            for (i, (path, leaf)) in like.iter().enumerate() {
                let data = moments.to_array(i).map_or(Vec::new(), |array| array.into_iter().collect());
                let data = data.into_iter().map(|x| tree::round(leaf.dtype, x)).collect();
                found.insert(path.clone(), Leaf { data, ..leaf.clone() });
            }
        }
    }));
    found
}

/// Returns the leaves below a prefix, without it.
pub(crate) fn under(prefix: &str, leaves: &Leaves) -> Leaves {
    leaves.iter().filter_map(|(path, leaf)| Some((path.strip_prefix(prefix)?.into(), leaf.clone()))).collect()
}

fn join(fast: Leaves, slow: Leaves) -> Leaves {
    let fast = fast.into_iter().map(|(path, leaf)| (format!("fast/{path}"), leaf));
    fast.chain(slow.into_iter().map(|(path, leaf)| (format!("slow/{path}"), leaf))).collect()
}

fn difference(after: &Leaves, before: &Leaves) -> Leaves {
    let each = |(path, leaf): (&String, &Leaf)| {
        let pairs = leaf.data.iter().zip(&before[path].data);
        let data = pairs.map(|(after, before)| tree::round(leaf.dtype, after - before)).collect();
        (path.clone(), Leaf { data, ..leaf.clone() })
    };
    after.iter().map(each).collect()
}

/// Returns true if this build has all dtypes.
pub(crate) fn types_are_supported<'a>(mut leaves: impl Iterator<Item = &'a Leaf>) -> bool {
    leaves.all(|leaf| DType::is_supported(leaf.dtype))
}
