//! What goes by the norms, means or singular values of whole leaves.

use super::registry::{Either, family};
use super::values::{Base, OneOrMore};
use crate::optimizer::*;
use crate::schedule::Hyperparam;
use crate::select::Mask;
use crate::transform::*;

family! { |a|
    "adaptive_grad_clip" => adaptive_grad_clip(a.required::<Hyperparam>("clipping")?)
        .axis(a.or::<Option<OneOrMore<isize>>>("axis", None)?.map(|axes| axes.0)),
    "centralize" => centralize(),
    "fromage" => fromage(a.required::<Hyperparam>("learning_rate")?),
    "galore" => {
        let galore = galore(a.required::<Hyperparam>("learning_rate")?)
            .rank(a.or("rank", 128)?)
            .update_proj_gap(a.or("update_proj_gap", 200)?)
            .mask(a.or("mask", Mask::all())?)
            .weight_dimension_numbers(a.or("weight_dimension_numbers", WeightDimensionNumbers::default())?);
        match a.or::<Option<Base>>("base_optimizer", None)? {
            None => Either::This(galore),
            Some(Base(base)) => Either::That(galore.base_optimizer(base)),
        }
    },
    "lars" => lars(a.required::<Hyperparam>("learning_rate")?)
        .weight_decay_mask(a.or("weight_decay_mask", Mask::all())?)
        .trust_ratio_mask(a.or("trust_ratio_mask", Mask::all())?)
        .nesterov(a.or("nesterov", false)?),
    "normalize" => normalize(),
    "normalize_by_update_norm" => normalize_by_update_norm(),
    "novograd" => novograd(a.required::<Hyperparam>("learning_rate")?),
    "scale_by_galore" => {
        let galore = scale_by_galore()
            .rank(a.or("rank", 128)?)
            .update_proj_gap(a.or("update_proj_gap", 200)?)
            .weight_dimension_numbers(a.or("weight_dimension_numbers", WeightDimensionNumbers::default())?);
        match a.or::<Option<Base>>("base_optimizer", None)? {
            None => Either::This(galore),
            Some(Base(base)) => Either::That(galore.base_optimizer(base)),
        }
    },
    "scale_by_novograd" => scale_by_novograd().mu_dtype(a.or::<Option<_>>("mu_dtype", None)?),
    "scale_by_param_block_norm" => scale_by_param_block_norm(),
    "scale_by_sm3" => scale_by_sm3(),
    "sm3" => sm3(a.required::<Hyperparam>("learning_rate")?),
}
