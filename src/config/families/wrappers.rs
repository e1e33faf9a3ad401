//! What holds other transformations.

mod conditions;
pub(in crate::config) mod named;
mod spikes;

use serde_json::{Value, json};

use crate::config::error::{ConfigError, Result};
use crate::config::member::{checked, with_arguments};
use crate::config::node::{Args, Member, Named, Node, Read};
use crate::config::schedules::schedule_argument;
use crate::config::values::{OneOrMore, Unused};
use crate::element::DType;
use crate::schedule::Hyperparam;
use crate::select::{Labels, Mask};
use crate::wrapper::{
    Arguments, EveryK, NamedChain, apply_if_finite, flatten, freezable, freeze, inject_hyperparams, lookahead, masked,
    multi_steps, partition, sam, selective_transform, skip_large_updates, skip_not_finite,
};

pub(in crate::config) const NAMES: &[&str] = &[
    "apply_if_finite",
    "chain",
    "conditionally_mask",
    "conditionally_transform",
    "flatten",
    "freezable",
    "freeze",
    "inject_hyperparams",
    "lookahead",
    "masked",
    "multi_steps",
    "named_chain",
    "partition",
    "sam",
    "selective_transform",
    "skip_on_spike",
];

/// The wrapper of this name, if it is one.
pub(in crate::config) fn build(name: &str, node: &Node<'_>) -> Option<Result<Member>> {
    Some(match name {
        "chain" => node.read::<Vec<Member>>().and_then(|members| checked(node, members)),
        "named_chain" => {
            let members = node.read::<Vec<(String, Member)>>();
            members.and_then(|members| checked(node, NamedChain::from_iter(members)))
        }
        "apply_if_finite" => with_arguments(name, node, |a| {
            checked(node, apply_if_finite(a.required::<Member>("inner")?, a.required("max_consecutive_errors")?))
        }),
        "conditionally_mask" => with_arguments(name, node, conditions::mask),
        "conditionally_transform" => with_arguments(name, node, conditions::transform),
        "flatten" => with_arguments(name, node, |a| checked(node, flatten(a.required::<Member>("inner")?))),
        "freeze" => with_arguments(name, node, |a| checked(node, freeze(a.required::<Mask>("mask")?))),
        "freezable" => with_arguments(name, node, |a| checked(node, freezable(a.required::<Member>("inner")?))),
        "inject_hyperparams" => with_arguments(name, node, inject),
        "lookahead" => with_arguments(name, node, |a| {
            let step_size = a.required::<Hyperparam>("slow_step_size")?;
            let wrapped = lookahead(a.required::<Member>("fast_optimizer")?, a.required("sync_period")?, step_size);
            checked(node, wrapped.reset_state(a.or("reset_state", false)?))
        }),
        "masked" => with_arguments(name, node, |a| {
            // Which extra arguments are masked along: there are none whose leaves are the parameters'.
            a.or("mask_compatible_extra_args", false)?;
            let wrapped = masked(a.required::<Member>("inner")?, a.required::<Mask>("mask")?);
            checked(node, if a.or("freeze_others", false)? { wrapped.freeze_others() } else { wrapped })
        }),
        "multi_steps" => with_arguments(name, node, accumulate),
        "partition" => with_arguments(name, node, |a| {
            let transforms = a.get("transforms").map_or(Ok(Vec::new()), |node| node.entries())?;
            let each = |(label, node): (&str, Node<'_>)| Ok((String::from(label), node.read()?));
            let transforms = transforms.into_iter().map(each).collect::<Result<Vec<(String, Member)>>>()?;
            checked(node, partition(transforms, a.required::<Labels>("labels")?))
        }),
        "sam" => with_arguments(name, node, adversarial),
        "selective_transform" => with_arguments(name, node, |a| {
            let mask = a.required::<Mask>("freeze_mask")?;
            checked(node, selective_transform(a.required::<Member>("optimizer")?, mask))
        }),
        "skip_on_spike" => with_arguments(name, node, spikes::build),
        _ => return None,
    })
}

fn inject(a: &Args<'_>) -> Result<Member> {
    let missing = || ConfigError::wrong(&a.node.place, "an argument `inner`", "none");
    let inner = a.get("inner").ok_or_else(missing)?;
    let OneOrMore(mut static_args) = a.or("static_args", OneOrMore(Vec::<String>::new()))?;
    let mut inside = with_hyperparams(&inner)?;
    // What a config has and the builder says otherwise, such as a `key`, is never injected.
    let mut of_builder = Vec::new();
    inside.arguments(&mut |name, _| of_builder.push(name));
    let of_config = arguments(&inner)?;
    static_args.retain(|name| of_builder.contains(&&**name) || !of_config.contains(&&**name));
    let injected = inject_hyperparams(inside).static_args(static_args);
    match a.or::<Option<DType>>("hyperparam_dtype", None)? {
        Some(dtype) => checked(&inner, injected.hyperparam_dtype(dtype)),
        None => checked(&inner, injected),
    }
}

/// The names of the arguments that a config of this can have, masked or not.
fn arguments(node: &Node<'_>) -> Result<Vec<&'static str>> {
    let (name, inside) = node.single("a transformation: {name: arguments}")?;
    match Args::new(name, inside)?.get("inner") {
        Some(inner) if name == "masked" => arguments(&inner),
        _ => Ok(node.known.asked(name).into_iter().map(|asked| asked.name).collect()),
    }
}

/// What has named arguments, masked or not.
fn with_hyperparams(node: &Node<'_>) -> Result<Named> {
    let (name, inside) = node.single("a transformation: {name: arguments}")?;
    if name == "masked" {
        let a = Args::new(name, inside)?;
        let missing = || ConfigError::wrong(&a.node.place, "an argument `inner`", "none");
        let inner = with_hyperparams(&a.get("inner").ok_or_else(missing)?)?;
        let wrapped = masked(inner, a.required::<Mask>("mask")?);
        let frozen = a.or("freeze_others", false)?;
        a.finish()?;
        return Ok(Box::new(if frozen { wrapped.freeze_others() } else { wrapped }));
    }
    node.known.named(name, node, inside)
}

fn accumulate(a: &Args<'_>) -> Result<Member> {
    let wrapped = multi_steps(a.required::<Member>("inner")?, a.required::<EveryK>("every_k_schedule")?)
        .use_grad_mean(a.or("use_grad_mean", true)?)
        .accumulator_dtype(a.or("accumulator_dtype", None)?);
    match a.or("should_skip_update_fn", None)? {
        None => checked(&a.node, wrapped),
        Some(Skip::NotFinite) => checked(&a.node, wrapped.should_skip_update_fn(skip_not_finite())),
        Some(Skip::Large(norm)) => checked(&a.node, wrapped.should_skip_update_fn(skip_large_updates(norm))),
    }
}

fn adversarial(a: &Args<'_>) -> Result<Member> {
    let wrapped = sam(a.required::<Member>("optimizer")?, a.required::<Member>("adv_optimizer")?)
        .sync_period(a.or("sync_period", 2)?)
        .reset_state(a.or("reset_state", true)?);
    // There is one process: nothing to take a mean over.
    a.or("batch_axis_name", Unused)?;
    match a.or("opaque_mode", false)? {
        false => checked(&a.node, wrapped),
        true => checked(&a.node, wrapped.opaque_mode()),
    }
}

enum Skip {
    NotFinite,
    Large(f64),
}

impl Read for Skip {
    fn read(node: &Node<'_>) -> Result<Skip> {
        if let Some(name) = node.value.as_str() {
            return node.choice(&[("skip_not_finite", ())]).map(|()| Skip::NotFinite).map_err(|e| match name {
                "skip_large_updates" => node.wrong("{\"skip_large_updates\": {\"max_squared_norm\": ..}}"),
                _ => e,
            });
        }
        let (name, inside) = node.single("\"skip_not_finite\" or {\"skip_large_updates\": ..}")?;
        if name != "skip_large_updates" {
            return Err(ConfigError::unknown(&node.place, "skip function", name, ["skip_large_updates"]));
        }
        let a = Args::new(name, inside)?;
        let norm = a.required("max_squared_norm")?;
        a.finish()?;
        Ok(Skip::Large(norm))
    }
}

/// A whole number, or a schedule.
impl Read for EveryK {
    fn read(node: &Node<'_>) -> Result<EveryK> {
        match node.value.as_u64() {
            Some(_) => Ok(node.read::<Hyperparam>()?.into()),
            None => schedule_argument(node).map(EveryK::from),
        }
    }

    fn schema() -> Value {
        json!({"anyOf": [{"type": "integer", "minimum": 1}, {"$ref": "#/$defs/scheduled"}]})
    }

    fn example() -> Value {
        json!(1)
    }
}
