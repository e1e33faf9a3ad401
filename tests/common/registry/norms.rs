//! Transformations by norms and means of leaves, or of the whole tree.

use gradchain::optimizer::{fromage, lars, novograd};
use gradchain::prelude::*;
use gradchain::transform::{
    adaptive_grad_clip, centralize, clip_by_block_norm, clip_by_block_rms, normalize, normalize_by_update_norm, scale,
    scale_by_novograd, scale_by_param_block_norm, scale_by_param_block_rms, scale_by_trust_ratio,
};

use super::{WHOLE, family};

family! {
    clip_by_block_norm, WHOLE, chain((clip_by_block_norm(0.5), sgd(0.1)));
    clip_by_global_norm, WHOLE, clip_by_global_norm(0.5);
    scale_by_trust_ratio, WHOLE, scale_by_trust_ratio();
    clip_by_block_rms, WHOLE, clip_by_block_rms(0.2);
    scale_by_param_block_rms, WHOLE, scale_by_param_block_rms();
    scale_by_novograd, WHOLE, scale_by_novograd();
    scale_by_novograd_mixed, WHOLE, scale_by_novograd().mu_dtype(gradchain::DType::F64);
    scale_by_param_block_norm, WHOLE, scale_by_param_block_norm();
    normalize, WHOLE, normalize();
    normalize_by_update_norm, WHOLE, chain((normalize_by_update_norm(), scale(-0.1)));
    centralize, WHOLE, chain((centralize(), sgd(0.1)));
    adaptive_grad_clip, WHOLE, chain((masked(adaptive_grad_clip(0.1), !Mask::min_ndim(6)), sgd(0.1)));
    lamb, WHOLE, lamb(0.1);
    lars, WHOLE, lars(0.1).weight_decay(0.1).weight_decay_mask(Mask::min_ndim(2)).trust_ratio_mask(Mask::min_ndim(1));
    fromage, WHOLE, fromage(0.1);
    novograd, WHOLE, novograd(0.1).weight_decay(0.1);
}
