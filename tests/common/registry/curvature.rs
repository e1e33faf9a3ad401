//! Transformations by curvature: differences of gradients, or an estimate of the Hessian's diagonal.

use gradchain::optimizer::sophia;
use gradchain::prelude::*;
use gradchain::transform::{hutchinson_estimator_diag_hessian, scale, scale_by_lbfgs, scale_by_sophia};

use super::{ELEMENT, WHOLE, family};

family! {
    scale_by_lbfgs, WHOLE, scale_by_lbfgs();
    scale_by_sophia, WHOLE, scale_by_sophia(clip_by_global_norm(0.5)).update_interval(2);
    hutchinson_estimator_diag_hessian, WHOLE, chain((hutchinson_estimator_diag_hessian(3), clip(1.0), scale(0.1)));
    lbfgs, WHOLE, lbfgs().learning_rate(0.1).without_linesearch();
    sophia, ELEMENT, sophia(0.1, scale(0.5)).update_interval(2).weight_decay_mask(Mask::min_ndim(2));
    sophia_without_clipping, ELEMENT, sophia(0.1, scale(0.5)).without_clipping().eps(0.1).mu_dtype(gradchain::DType::F64);
    sophia_hutchinson, WHOLE, sophia(0.1, hutchinson_estimator_diag_hessian(3)).update_interval(2);
}
