//! What is done to each element by itself: products, sums, bounds, means over time.

use crate::config::member::{Either, family};
use crate::config::schedules::Scheduled;
use crate::element::DType;
use crate::optimizer::*;
use crate::schedule::Hyperparam;
use crate::transform::*;
use crate::wrapper::masked;

family! { |a|
    "add_decayed_weights" => masked(add_decayed_weights(0.0), a.or("mask", crate::Mask::all())?),
    "apply_every" => apply_every(a.or("k", 1)?),
    "clip" => clip(a.required::<Hyperparam>("max_delta")?),
    "ema" => ema(a.required::<Hyperparam>("decay")?)
        .debias(a.or("debias", true)?)
        .accumulator_dtype(a.or::<Option<_>>("accumulator_dtype", None)?),
    "identity" => identity(),
    "optimistic_gradient_descent" => optimistic_gradient_descent(a.required::<Hyperparam>("learning_rate")?),
    "reduce_variance" => reduce_variance(),
    "scale" => scale(a.required::<Hyperparam>("step_size")?),
    "scale_by_learning_rate" => scale_by_learning_rate(a.required::<Hyperparam>("learning_rate")?)
        .flip_sign(a.or("flip_sign", true)?),
    "scale_by_optimistic_gradient" => scale_by_optimistic_gradient(),
    "scale_by_schedule" => scale_by_schedule(a.required::<Scheduled>("step_size_fn")?.0),
    "set_to_zero" => set_to_zero(),
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
    "trace" => trace(a.required::<Hyperparam>("decay")?)
        .nesterov(a.or("nesterov", false)?)
        .accumulator_dtype(a.or::<Option<_>>("accumulator_dtype", None)?),
    "zero_nans" => zero_nans(),
}
