//! What measures how far parameters are from where they began.

use super::registry::family;
use crate::element::DType;
use crate::optimizer::*;
use crate::schedule::Hyperparam;
use crate::select::Mask;
use crate::transform::*;

family! { |a|
    "cocob" => cocob().mask(a.or("mask", Mask::all())?),
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
    "madgrad" => madgrad(a.required::<Hyperparam>("learning_rate")?),
    "scale_by_cocob" => scale_by_cocob(),
    "scale_by_distance_over_gradients" => scale_by_distance_over_gradients()
        .param_dtype(a.or("param_dtype", DType::F32)?),
    "scale_by_madgrad" => scale_by_madgrad(a.required::<Hyperparam>("learning_rate")?),
}
