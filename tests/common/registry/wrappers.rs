//! Wrappers beyond the foundation's, and what looks on.

use gradchain::prelude::*;

use super::{ELEMENT, WHOLE, WHOLE_WINDOWS, WINDOWS, family};

family! {
    conditionally_transform, ELEMENT, chain((conditionally_transform(scale_by_adam(), step_mod(2, 1)), scale(-0.1)));
    // The loss of a sum of gradients is the sum of the losses.
    conditionally_transform_value, WHOLE_WINDOWS,
        chain((ema(0.5), conditionally_transform(chain((clip_by_global_norm(0.1), adam(0.1))), value_lt(2.0))));
    conditionally_mask, ELEMENT, conditionally_mask(adam(0.1), step_lt(2));
    conditionally_mask_in_chain, WHOLE,
        chain((trace(0.5), conditionally_mask(chain((clip_by_global_norm(0.1), adam(0.1))), step_ge(1)), scale(0.5)));
    flatten, WHOLE, flatten(adamw(0.1));
    flatten_in_chain, WHOLE, chain((ema(0.5), flatten(chain((clip_by_block_rms(0.1), adam(0.1)))), scale(0.5)));
    freeze, ELEMENT, chain((sgd(0.1), freeze(Mask::min_ndim(2))));
    selective_transform, ELEMENT, selective_transform(adam(0.1), Mask::min_ndim(2));
    hutchinson, WHOLE_WINDOWS, hutchinson_estimator_diag_hessian(42);
    monitor, WHOLE, chain((
        monitor().measure("norm", GlobalNorm).measure("mean", measure_with_ema(GlobalNorm, 0.9)),
        clip_by_global_norm(0.5),
        snapshot("clipped", GlobalNorm),
        sgd(0.1),
    ));
    sam, WINDOWS, sam(adam(0.1), sgd(0.1));
    sam_whole, WHOLE_WINDOWS, sam(lamb(0.1), chain((normalize(), sgd(0.1)))).sync_period(3).reset_state(false);
    sam_opaque, WHOLE_WINDOWS, sam(adam(0.1), chain((normalize(), sgd(0.1)))).opaque_mode();
    scale_by_sophia, WHOLE_WINDOWS, chain((
        scale_by_sophia(hutchinson_estimator_diag_hessian(7)).update_interval(2),
        scale(-0.1),
    ));
    sophia, WHOLE, sophia(0.1, scale(1.5)).update_interval(2).weight_decay_mask(Mask::min_ndim(2));
}
