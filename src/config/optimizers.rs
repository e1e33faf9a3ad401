//! The named optimizers.

use super::node::Unused;
use super::registry::{Either, family};
use crate::element::DType;
use crate::optimizer::*;
use crate::schedule::Hyperparam;
use crate::select::Mask;
use crate::transform::LionMode;

family! { |a|
    "adam" => adam(a.required::<Hyperparam>("learning_rate")?)
        .mu_dtype(a.or::<Option<_>>("mu_dtype", None)?)
        .nu_dtype(a.or::<Option<_>>("nu_dtype", None)?)
        .nesterov(a.or("nesterov", false)?),
    "adamw" => adamw(a.required::<Hyperparam>("learning_rate")?)
        .mask(a.or("mask", Mask::all())?)
        .mu_dtype(a.or::<Option<_>>("mu_dtype", None)?)
        .nu_dtype(a.or::<Option<_>>("nu_dtype", None)?)
        .nesterov(a.or("nesterov", false)?),
    "lamb" => lamb(a.required::<Hyperparam>("learning_rate")?)
        .mask(a.or("mask", Mask::all())?)
        .mu_dtype(a.or::<Option<_>>("mu_dtype", None)?)
        .nu_dtype(a.or::<Option<_>>("nu_dtype", None)?),
    // Without a learning rate the direction is the step. There is no line search yet.
    "lbfgs" => {
        a.or("linesearch", Unused)?;
        lbfgs(a.or::<Option<Hyperparam>>("learning_rate", None)?.unwrap_or(1.0.into()))
            .memory_size(a.or("memory_size", 10)?)
            .scale_init_precond(a.or("scale_init_precond", true)?)
    },
    "lion" => lion(a.required::<Hyperparam>("learning_rate")?)
        .mask(a.or("mask", Mask::all())?)
        .mu_dtype(a.or::<Option<_>>("mu_dtype", None)?)
        .mode(a.or("mode", LionMode::default())?),
    // Without momentum the arguments that concern it mean nothing, as in Optax.
    "sgd" => {
        let plain = sgd(a.required::<Hyperparam>("learning_rate")?);
        let nesterov = a.or("nesterov", false)?;
        let accumulator_dtype = a.or::<Option<DType>>("accumulator_dtype", None)?;
        match a.or::<Option<Hyperparam>>("momentum", None)? {
            None => Either::This(plain),
            Some(momentum) => {
                Either::That(plain.momentum(momentum).nesterov(nesterov).accumulator_dtype(accumulator_dtype))
            }
        }
    },
}
