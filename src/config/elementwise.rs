//! The parts that chains are made of.

use super::registry::family;
use super::values::Scheduled;
use crate::schedule::Hyperparam;
use crate::transform::*;
use crate::wrapper::masked;

family! { |a|
    "add_decayed_weights" => masked(add_decayed_weights(0.0), a.or("mask", crate::Mask::all())?),
    // Optax takes either a key or a seed. Its random numbers are others, whichever it is.
    "add_noise" => {
        let seed = a.or::<Option<u64>>("seed", None)?.or(a.or("key", None)?).unwrap_or(0);
        add_noise(a.required::<Hyperparam>("eta")?, a.required::<Hyperparam>("gamma")?, seed)
    },
    "clip" => clip(a.required::<Hyperparam>("max_delta")?),
    "clip_by_block_rms" => clip_by_block_rms(a.required::<Hyperparam>("threshold")?),
    "clip_by_global_norm" => clip_by_global_norm(a.required::<Hyperparam>("max_norm")?),
    "ema" => ema(a.required::<Hyperparam>("decay")?)
        .debias(a.or("debias", true)?)
        .accumulator_dtype(a.or::<Option<_>>("accumulator_dtype", None)?),
    "identity" => identity(),
    "keep_params_nonnegative" => keep_params_nonnegative(),
    "scale" => scale(a.required::<Hyperparam>("step_size")?),
    "scale_by_adam" => scale_by_adam()
        .mu_dtype(a.or::<Option<_>>("mu_dtype", None)?)
        .nu_dtype(a.or::<Option<_>>("nu_dtype", None)?)
        .nesterov(a.or("nesterov", false)?),
    "scale_by_factored_rms" => scale_by_factored_rms()
        .factored(a.or("factored", true)?)
        .step_offset(a.or("step_offset", 0)?)
        .min_dim_size_to_factor(a.or("min_dim_size_to_factor", 128)?),
    "scale_by_lbfgs" => scale_by_lbfgs()
        .memory_size(a.or("memory_size", 10)?)
        .scale_init_precond(a.or("scale_init_precond", true)?),
    "scale_by_learning_rate" => scale_by_learning_rate(a.required::<Hyperparam>("learning_rate")?)
        .flip_sign(a.or("flip_sign", true)?),
    "scale_by_lion" => scale_by_lion()
        .mu_dtype(a.or::<Option<_>>("mu_dtype", None)?)
        .mode(a.or("mode", LionMode::default())?),
    "scale_by_muon" => scale_by_muon()
        .ns_coeffs(a.or("ns_coeffs", NsCoeffs::standard())?)
        .ns_steps(a.or("ns_steps", 5)?)
        .mu_dtype(a.or::<Option<_>>("mu_dtype", None)?)
        .nesterov(a.or("nesterov", true)?)
        .adaptive(a.or("adaptive", false)?)
        .preconditioning(a.or("preconditioning", Preconditioning::default())?)
        .weight_dimension_numbers(a.or("weight_dimension_numbers", WeightDimensionNumbers::default())?),
    "scale_by_param_block_rms" => scale_by_param_block_rms(),
    "scale_by_schedule" => scale_by_schedule(a.required::<Scheduled>("step_size_fn")?.0),
    "scale_by_trust_ratio" => scale_by_trust_ratio(),
    "set_to_zero" => set_to_zero(),
    "trace" => trace(a.required::<Hyperparam>("decay")?)
        .nesterov(a.or("nesterov", false)?)
        .accumulator_dtype(a.or::<Option<_>>("accumulator_dtype", None)?),
    "zero_nans" => zero_nans(),
}
