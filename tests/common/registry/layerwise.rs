//! What goes by norms, means or singular values of whole leaves.

use gradchain::prelude::*;

use super::{WHOLE, family};

family! {
    lars, WHOLE, lars(0.1).weight_decay(0.1).weight_decay_mask(Mask::min_ndim(2)).trust_ratio_mask(Mask::min_ndim(1));
    fromage, WHOLE, fromage(0.1);
    scale_by_novograd, WHOLE, scale_by_novograd();
    scale_by_novograd_mixed, WHOLE, scale_by_novograd().mu_dtype(gradchain::DType::F64);
    novograd, WHOLE, novograd(0.1).weight_decay(0.1);
    scale_by_param_block_norm, WHOLE, scale_by_param_block_norm();
    normalize, WHOLE, normalize();
    normalize_by_update_norm, WHOLE, chain((normalize_by_update_norm(), scale(-0.1)));
    centralize, WHOLE, chain((centralize(), sgd(0.1)));
    adaptive_grad_clip, WHOLE, chain((masked(adaptive_grad_clip(0.1), !Mask::min_ndim(6)), sgd(0.1)));
    scale_by_sm3, WHOLE, scale_by_sm3().b2(0.9);
    sm3, WHOLE, sm3(0.1);
    scale_by_galore, WHOLE, scale_by_galore().rank(2).update_proj_gap(2).base_optimizer(
        chain((clip_by_global_norm(1.0), scale_by_adam())),
    );
    galore, WHOLE, galore(0.1).rank(1);
}
