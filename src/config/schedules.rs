//! The schedules, by name.

use serde_json::{Value, json};

use super::error::{ConfigError, Result};
use super::node::{Args, Asked, Known, Node, Probe, Read};
use crate::schedule::*;

pub(super) const NAMES: &[&str] = &[
    "clamp",
    "constant",
    "cosine_decay",
    "cosine_onecycle",
    "cosine_restarts",
    "exponential_decay",
    "inverse_sqrt",
    "join",
    "linear",
    "linear_onecycle",
    "noam",
    "piecewise_constant",
    "piecewise_interpolate",
    "polynomial",
    "product",
    "rex",
    "sgdr",
    "sum",
    "table",
    "warmup_constant",
    "warmup_cosine_decay",
    "warmup_exponential_decay",
    "warmup_stable_decay",
];

/// A number of steps; a negative one is no steps, as in Optax.
struct Steps(u64);

impl Read for Steps {
    fn read(node: &Node<'_>) -> Result<Steps> {
        match node.value.as_i64() {
            Some(steps) => Ok(Steps(steps.max(0).unsigned_abs())),
            None => Err(node.wrong("a whole number")),
        }
    }

    fn schema() -> Value {
        i64::schema()
    }

    fn example() -> Value {
        i64::example()
    }
}

pub(super) fn read(node: &Node<'_>) -> Result<Schedule> {
    let (name, inside) = node.single("a schedule: {name: arguments}")?;
    let a = &Args::new(name, inside)?;
    let unknown = || ConfigError::unknown(&node.place, "schedule", name, NAMES.iter().copied());
    let schedule = build(name, a).unwrap_or_else(|| Err(unknown()))?;
    a.finish()?;
    schedule.validate().map_err(|error| ConfigError::refused(&a.node.place, error))?;
    Ok(schedule)
}

/// What the schedule of this name asks for.
pub(super) fn asked(name: &str, known: &'static dyn Known) -> Vec<Asked> {
    let probe = Probe::default();
    if let Ok(a) = Args::new(name, Node::probe(&probe, known)) {
        drop(build(name, &a));
    }
    probe.into_asked()
}

fn build(name: &str, a: &Args<'_>) -> Option<Result<Schedule>> {
    NAMES.contains(&name).then(|| known(name, a))
}

fn known(name: &str, a: &Args<'_>) -> Result<Schedule> {
    let number = |name| a.required::<f64>(name);
    let steps = |name| a.required::<Steps>(name).map(|steps| steps.0);
    let begin = || a.or("transition_begin", Steps(0)).map(|steps| steps.0);
    let pairs = || {
        let pairs = a.or::<Option<Vec<(Steps, f64)>>>("boundaries_and_scales", None)?;
        Ok(pairs.into_iter().flatten().map(|(Steps(at), scale)| (at, scale)).collect::<Vec<_>>())
    };
    Ok(match name {
        "constant" => constant(number("value")?).into(),
        "linear" => linear(number("init_value")?, number("end_value")?, steps("transition_steps")?)
            .transition_begin(begin()?)
            .into(),
        "polynomial" => {
            polynomial(number("init_value")?, number("end_value")?, number("power")?, steps("transition_steps")?)
                .transition_begin(begin()?)
                .into()
        }
        "exponential_decay" => {
            exponential_decay(number("init_value")?, steps("transition_steps")?, number("decay_rate")?)
                .transition_begin(begin()?)
                .staircase(a.or("staircase", false)?)
                .end_value(a.or("end_value", None)?)
                .into()
        }
        "cosine_decay" => cosine_decay(number("init_value")?, steps("decay_steps")?)
            .alpha(a.or("alpha", 0.0)?)
            .exponent(a.or("exponent", 1.0)?)
            .into(),
        "piecewise_constant" => piecewise_constant(number("init_value")?, pairs()?).into(),
        "piecewise_interpolate" => {
            let kinds = [("linear", InterpolateType::Linear), ("cosine", InterpolateType::Cosine)];
            let missing = || ConfigError::wrong(&a.node.place, "an argument `interpolate_type`", "none");
            let kind = a.get("interpolate_type").ok_or_else(missing)?.choice(&kinds)?;
            piecewise_interpolate(kind, number("init_value")?, pairs()?).into()
        }
        "warmup_constant" => {
            warmup_constant(number("init_value")?, number("peak_value")?, steps("warmup_steps")?).into()
        }
        "warmup_cosine_decay" => warmup_cosine(a)?.into(),
        "warmup_exponential_decay" => warmup_exponential_decay(
            number("init_value")?,
            number("peak_value")?,
            steps("warmup_steps")?,
            steps("transition_steps")?,
            number("decay_rate")?,
        )
        .transition_begin(begin()?)
        .staircase(a.or("staircase", false)?)
        .end_value(a.or("end_value", None)?)
        .into(),
        "linear_onecycle" => linear_onecycle(steps("transition_steps")?, number("peak_value")?)
            .pct_start(a.or("pct_start", 0.3)?)
            .pct_final(a.or("pct_final", 0.85)?)
            .div_factor(a.or("div_factor", 25.0)?)
            .final_div_factor(a.or("final_div_factor", 1e4)?)
            .into(),
        "cosine_onecycle" => cosine_onecycle(steps("transition_steps")?, number("peak_value")?)
            .pct_start(a.or("pct_start", 0.3)?)
            .div_factor(a.or("div_factor", 25.0)?)
            .final_div_factor(a.or("final_div_factor", 1e4)?)
            .into(),
        "sgdr" => sgdr(a.required::<Vec<WarmupCosineDecay>>("cosine_kwargs")?).into(),
        "join" => {
            let boundaries = a.required::<Vec<Steps>>("boundaries")?.into_iter().map(|steps| steps.0);
            join(a.required::<Vec<Schedule>>("schedules")?, boundaries).into()
        }
        "warmup_stable_decay" => warmup_stable_decay(
            number("peak_value")?,
            steps("warmup_steps")?,
            steps("stable_steps")?,
            steps("decay_steps")?,
        )
        .init_value(a.or("init_value", 0.0)?)
        .end_value(a.or("end_value", 0.0)?)
        .shape(a.or("shape", DecayShape::default())?)
        .into(),
        "inverse_sqrt" => inverse_sqrt(number("peak_value")?, steps("warmup_steps")?).into(),
        "noam" => noam(steps("model_width")?, steps("warmup_steps")?).into(),
        "rex" => rex(number("init_value")?, steps("decay_steps")?).into(),
        "cosine_restarts" => cosine_restarts(number("init_value")?, steps("cycle_steps")?)
            .steps_factor(a.or("steps_factor", 1)?)
            .value_factor(a.or("value_factor", 1.0)?)
            .alpha(a.or("alpha", 0.0)?)
            .into(),
        "table" => table(a.required::<Vec<f64>>("values")?).every(a.or("every", 1)?).into(),
        "clamp" => clamp(a.required::<Schedule>("schedule")?, number("min_value")?, number("max_value")?).into(),
        "sum" => sum(a.required::<Vec<Schedule>>("schedules")?).into(),
        "product" => product(a.required::<Vec<Schedule>>("schedules")?).into(),
        other => unreachable!("`{other}` is in NAMES"),
    })
}

fn warmup_cosine(a: &Args<'_>) -> Result<WarmupCosineDecay> {
    let steps = |name| a.required::<Steps>(name).map(|steps| steps.0);
    let [init, peak] = [a.required("init_value")?, a.required("peak_value")?];
    Ok(warmup_cosine_decay(init, peak, steps("warmup_steps")?, steps("decay_steps")?, a.or("end_value", 0.0)?)
        .exponent(a.or("exponent", 1.0)?))
}

/// The arguments alone, as `sgdr` lists them.
impl Read for WarmupCosineDecay {
    fn read(node: &Node<'_>) -> Result<WarmupCosineDecay> {
        let args = Args::new("warmup_cosine_decay", node.clone())?;
        let cycle = warmup_cosine(&args)?;
        args.finish()?;
        Ok(cycle)
    }

    fn schema() -> Value {
        json!({"$ref": "#/$defs/warmup_cosine_decay"})
    }
}

impl Read for DecayShape {
    fn read(node: &Node<'_>) -> Result<DecayShape> {
        node.choice(&[
            ("linear", DecayShape::Linear),
            ("one_minus_sqrt", DecayShape::OneMinusSqrt),
            ("cosine", DecayShape::Cosine),
        ])
    }

    fn schema() -> Value {
        json!({"enum": ["linear", "one_minus_sqrt", "cosine"]})
    }

    fn example() -> Value {
        json!("linear")
    }
}

impl Read for Schedule {
    fn read(node: &Node<'_>) -> Result<Schedule> {
        read(node)
    }

    fn schema() -> Value {
        json!({"$ref": "#/$defs/schedule"})
    }

    fn example() -> Value {
        json!({"constant": {"value": 1.0}})
    }
}

/// A number, or `{"schedule": ..}`.
impl Read for Hyperparam {
    fn read(node: &Node<'_>) -> Result<Hyperparam> {
        match node.value {
            Value::Object(_) => Ok(schedule_argument(node)?.into()),
            _ => f64::read(node).map(Hyperparam::from).map_err(|_| node.wrong("a number or a schedule")),
        }
    }

    fn schema() -> Value {
        json!({"anyOf": [{"type": ["number", "string"]}, {"$ref": "#/$defs/scheduled"}]})
    }

    fn example() -> Value {
        json!(0.5)
    }
}

/// `{"schedule": ..}`.
pub(super) fn schedule_argument(node: &Node<'_>) -> Result<Schedule> {
    match node.single("{\"schedule\": ..}")? {
        ("schedule", inside) => inside.read(),
        _ => Err(node.wrong("{\"schedule\": ..}")),
    }
}

/// An argument that must be a schedule.
pub(super) struct Scheduled(pub(super) Schedule);

impl Read for Scheduled {
    fn read(node: &Node<'_>) -> Result<Scheduled> {
        match node.single("{\"schedule\": ..}")? {
            ("schedule", _) => schedule_argument(node),
            _ => node.read(),
        }
        .map(Scheduled)
    }

    fn schema() -> Value {
        json!({"anyOf": [{"$ref": "#/$defs/scheduled"}, {"$ref": "#/$defs/schedule"}]})
    }

    fn example() -> Value {
        json!({"schedule": {"constant": {"value": 1.0}}})
    }
}
