//! What goes by norms and means of leaves, or of the whole tree.

use crate::config::member::family;
use crate::config::values::OneOrMore;
use crate::optimizer::*;
use crate::schedule::Hyperparam;
use crate::select::Mask;
use crate::transform::*;

family! { |a|
    "adaptive_grad_clip" => adaptive_grad_clip(a.required::<Hyperparam>("clipping")?)
        .axis(a.or::<Option<OneOrMore<isize>>>("axis", None)?.map(|axes| axes.0)),
    "centralize" => centralize(),
    "clip_by_block_norm" => clip_by_block_norm(a.required::<Hyperparam>("max_norm")?),
    "clip_by_block_rms" => clip_by_block_rms(a.required::<Hyperparam>("threshold")?),
    "clip_by_global_norm" => clip_by_global_norm(a.required::<Hyperparam>("max_norm")?),
    "fromage" => fromage(a.required::<Hyperparam>("learning_rate")?),
    "lamb" => lamb(a.required::<Hyperparam>("learning_rate")?)
        .mask(a.or("mask", Mask::all())?)
        .mu_dtype(a.or::<Option<_>>("mu_dtype", None)?)
        .nu_dtype(a.or::<Option<_>>("nu_dtype", None)?),
    "lars" => lars(a.required::<Hyperparam>("learning_rate")?)
        .weight_decay_mask(a.or("weight_decay_mask", Mask::all())?)
        .trust_ratio_mask(a.or("trust_ratio_mask", Mask::all())?)
        .nesterov(a.or("nesterov", false)?),
    "normalize" => normalize(),
    "normalize_by_update_norm" => normalize_by_update_norm(),
    "novograd" => novograd(a.required::<Hyperparam>("learning_rate")?),
    "scale_by_novograd" => scale_by_novograd().mu_dtype(a.or::<Option<_>>("mu_dtype", None)?),
    "scale_by_param_block_norm" => scale_by_param_block_norm(),
    "scale_by_param_block_rms" => scale_by_param_block_rms(),
    "scale_by_trust_ratio" => scale_by_trust_ratio(),
}
