//! What holds other transformations.

use super::error::{ConfigError, Result};
use super::node::{Args, Node, Read};
use super::registry::{Member, checked, named};
use super::values::OneOrMore;
use crate::element::DType;
use crate::schedule::Hyperparam;
use crate::select::{Labels, Mask};
use crate::wrapper::*;

pub(super) const NAMES: &[&str] = &[
    "apply_if_finite",
    "chain",
    "freeze",
    "inject_hyperparams",
    "lookahead",
    "masked",
    "multi_steps",
    "named_chain",
    "partition",
    "selective_transform",
];

/// The wrapper of this name, if it is one.
pub(super) fn build(name: &str, node: &Node<'_>) -> Option<Result<Member>> {
    Some(match name {
        "chain" => node.read::<Vec<Member>>().and_then(|members| checked(node, members)),
        "named_chain" => {
            let members = node.read::<Vec<(String, Member)>>();
            members.and_then(|members| checked(node, NamedChain::from_iter(members)))
        }
        "apply_if_finite" => with_arguments(name, node, |a| {
            checked(node, apply_if_finite(a.required::<Member>("inner")?, a.required("max_consecutive_errors")?))
        }),
        "freeze" => {
            with_arguments(name, node, |a| checked(node, masked((), !a.required::<Mask>("mask")?).freeze_others()))
        }
        "inject_hyperparams" => with_arguments(name, node, inject),
        "lookahead" => with_arguments(name, node, |a| {
            let step_size = a.required::<Hyperparam>("slow_step_size")?;
            let wrapped = lookahead(a.required::<Member>("fast_optimizer")?, a.required("sync_period")?, step_size);
            checked(node, wrapped.reset_state(a.or("reset_state", false)?))
        }),
        "masked" => with_arguments(name, node, |a| {
            // Which extra arguments are masked along: there are none whose leaves are the parameters'.
            a.or("mask_compatible_extra_args", false)?;
            checked(node, masked(a.required::<Member>("inner")?, a.required::<Mask>("mask")?))
        }),
        "multi_steps" => with_arguments(name, node, accumulate),
        "partition" => with_arguments(name, node, |a| {
            let transforms = a.get("transforms").map_or(Ok(Vec::new()), |node| node.entries())?;
            let each = |(label, node): (&str, Node<'_>)| Ok((String::from(label), node.read()?));
            let transforms = transforms.into_iter().map(each).collect::<Result<Vec<(String, Member)>>>()?;
            checked(node, partition(transforms, a.required::<Labels>("labels")?))
        }),
        "selective_transform" => with_arguments(name, node, |a| {
            let mask = !a.required::<Mask>("freeze_mask")?;
            checked(node, masked(a.required::<Member>("optimizer")?, mask).freeze_others())
        }),
        _ => return None,
    })
}

/// Reads arguments, and refuses those that were not asked for.
fn with_arguments(name: &str, node: &Node<'_>, build: impl FnOnce(&Args<'_>) -> Result<Member>) -> Result<Member> {
    let a = Args::new(name, node.clone())?;
    let built = build(&a)?;
    a.finish()?;
    Ok(built)
}

fn inject(a: &Args<'_>) -> Result<Member> {
    let missing = || ConfigError::wrong(&a.node.place, "an argument `inner`", "none");
    let inner = a.get("inner").ok_or_else(missing)?;
    let (name, inside) = inner.single("a transformation: {name: arguments}")?;
    let OneOrMore(static_args) = a.or("static_args", OneOrMore(Vec::<String>::new()))?;
    if NAMES.contains(&name) {
        return Err(ConfigError::wrong(&inner.place, "a transformation with hyperparameters", format!("`{name}`")));
    }
    let injected = inject_hyperparams(named(name, &inner, inside)?).static_args(static_args);
    match a.or::<Option<DType>>("hyperparam_dtype", None)? {
        Some(dtype) => checked(&inner, injected.hyperparam_dtype(dtype)),
        None => checked(&inner, injected),
    }
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
