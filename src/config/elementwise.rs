//! Arithmetic on single elements.

use super::registry::family;
use crate::schedule::Hyperparam;
use crate::transform::*;
use crate::wrapper::masked;

family! { |a|
    "add_decayed_weights" => masked(add_decayed_weights(0.0), a.or("mask", crate::Mask::all())?),
    "scale" => scale(a.required::<Hyperparam>("step_size")?),
    "scale_by_adam" => scale_by_adam()
        .mu_dtype(a.or("mu_dtype", None)?)
        .nu_dtype(a.or("nu_dtype", None)?)
        .nesterov(a.or("nesterov", false)?),
    "scale_by_learning_rate" => scale_by_learning_rate(a.required::<Hyperparam>("learning_rate")?)
        .flip_sign(a.or("flip_sign", true)?),
}
