//! The named optimizers.

use super::registry::{Either, family};
use super::values::Linesearch;
use crate::element::DType;
use crate::optimizer::*;
use crate::schedule::Hyperparam;
use crate::select::Mask;
use crate::transform::{LionMode, NsCoeffs, Preconditioning, WeightDimensionNumbers};

family! { |a|
    // What is absent is so for good; the values of what is there are set by `finish`.
    "adafactor" => {
        let there = |name| Ok(a.or::<Option<Hyperparam>>(name, None)?.map(|h| h.at(0)));
        let clip = a.or("clipping_threshold", Some(Hyperparam::from(1.0)))?.map(|h| h.at(0));
        adafactor(a.or::<Option<Hyperparam>>("learning_rate", None)?.unwrap_or(1.0.into()))
            .min_dim_size_to_factor(a.or("min_dim_size_to_factor", 128)?)
            .decay_offset(a.or("decay_offset", 0)?)
            .multiply_by_parameter_scale(a.or("multiply_by_parameter_scale", true)?)
            .clipping_threshold(clip)
            .momentum(there("momentum")?)
            .dtype_momentum(a.or::<Option<_>>("dtype_momentum", None)?)
            .weight_decay_rate(there("weight_decay_rate")?)
            .weight_decay_mask(a.or("weight_decay_mask", Mask::all())?)
            .factored(a.or("factored", true)?)
    },
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
    // A line search that is left out is the usual one, and `null` is none. Without a learning rate the direction is the step.
    "lbfgs" => {
        let plain = lbfgs()
            .learning_rate(a.or::<Option<Hyperparam>>("learning_rate", None)?.unwrap_or(1.0.into()))
            .memory_size(a.or("memory_size", 10)?)
            .scale_init_precond(a.or("scale_init_precond", true)?);
        match a.or("linesearch", Linesearch::Usual)? {
            Linesearch::Usual => Either::This(plain),
            Linesearch::Given(None) => Either::That(Either::This(plain.without_linesearch())),
            Linesearch::Given(Some(linesearch)) => Either::That(Either::That(plain.linesearch(linesearch))),
        }
    },
    "lion" => lion(a.required::<Hyperparam>("learning_rate")?)
        .mask(a.or("mask", Mask::all())?)
        .mu_dtype(a.or::<Option<_>>("mu_dtype", None)?)
        .mode(a.or("mode", LionMode::default())?),
    "muon" => {
        let numbers = a.or("muon_weight_dimension_numbers", WeightDimensionNumbers::default())?;
        let muon = muon(a.required::<Hyperparam>("learning_rate")?)
            .ns_coeffs(a.or("ns_coeffs", NsCoeffs::standard())?)
            .ns_steps(a.or("ns_steps", 5)?)
            .weight_decay_mask(a.or("weight_decay_mask", Mask::all())?)
            .mu_dtype(a.or::<Option<_>>("mu_dtype", None)?)
            .nesterov(a.or("nesterov", true)?)
            .adaptive(a.or("adaptive", false)?)
            .preconditioning(a.or("preconditioning", Preconditioning::default())?)
            .consistent_rms(a.or::<Option<f64>>("consistent_rms", None)?)
            .muon_weight_dimension_numbers(numbers);
        match a.or::<Option<Hyperparam>>("adam_learning_rate", None)? {
            None => muon,
            Some(rate) => muon.adam_learning_rate(rate),
        }
    },
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
