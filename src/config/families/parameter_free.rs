//! What finds its step size from how far the parameters have come.

use crate::config::error::{ConfigError, Result};
use crate::config::member::family;
use crate::config::node::{Node, Read};
use crate::element::DType;
use crate::optimizer::*;
use crate::schedule::Hyperparam;
use crate::select::Mask;
use crate::transform::*;

family! { |a|
    "cocob" => cocob().mask(a.or("mask", Mask::all())?),
    "dadapt_adamw" => dadapt_adamw().betas(a.or("betas", (0.9, 0.999))?),
    "dog" => dog()
        .init_step(a.or("init_step", InitStep::Heuristic(1e-6))?)
        .mask(a.or("mask", Mask::all())?),
    // Whether there is a guess is so for good; its value is set by `finish`.
    "dowg" => {
        let dowg = dowg().mask(a.or("mask", Mask::all())?);
        match a.or::<Option<Hyperparam>>("init_estim_sq_dist", None)? {
            None => dowg,
            Some(guess) => dowg.init_estim_sq_dist(guess),
        }
    },
    "prodigy" => {
        let prodigy = prodigy()
            .betas(a.or("betas", (0.9, 0.999))?)
            .safeguard_warmup(a.or("safeguard_warmup", false)?);
        match a.or::<Option<Hyperparam>>("beta3", None)? {
            None => prodigy,
            Some(beta3) => prodigy.beta3(beta3),
        }
    },
    "scale_by_cocob" => scale_by_cocob(),
    "scale_by_distance_over_gradients" => scale_by_distance_over_gradients()
        .param_dtype(a.or("param_dtype", DType::F32)?),
    "schedule_free_adamw" => schedule_free_adamw()
        .warmup_steps(a.or::<Option<u64>>("warmup_steps", None)?)
        .state_dtype(a.or::<Option<_>>("state_dtype", None)?),
    "schedule_free_sgd" => schedule_free_sgd()
        .warmup_steps(a.or::<Option<u64>>("warmup_steps", None)?)
        .state_dtype(a.or::<Option<_>>("state_dtype", None)?),
}

/// `[kind, number]`
impl Read for InitStep {
    fn read(node: &Node<'_>) -> Result<InitStep> {
        let (name, value) = node.read::<(String, f64)>()?;
        InitStep::from_name(&name, value).map_err(|error| ConfigError::refused(&node.place, error))
    }
}
