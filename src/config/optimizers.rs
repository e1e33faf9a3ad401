//! The named optimizers.

use super::registry::family;
use crate::optimizer::*;
use crate::schedule::Hyperparam;
use crate::select::Mask;

family! { |a|
    "adam" => adam(a.required::<Hyperparam>("learning_rate")?)
        .mu_dtype(a.or("mu_dtype", None)?)
        .nu_dtype(a.or("nu_dtype", None)?)
        .nesterov(a.or("nesterov", false)?),
    "adamw" => adamw(a.required::<Hyperparam>("learning_rate")?)
        .mask(a.or("mask", Mask::all())?)
        .mu_dtype(a.or("mu_dtype", None)?)
        .nu_dtype(a.or("nu_dtype", None)?)
        .nesterov(a.or("nesterov", false)?),
}
