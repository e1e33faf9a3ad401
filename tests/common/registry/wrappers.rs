//! Wrappers, what looks on, and what holds another transformation. Not here, since they are no transformations of
//! gradients: `differentially_private_aggregate` and `dpsgd`, which take a gradient for each example;
//! `tests/behaviour/wrappers_catalogue.rs` holds them to oracles.

use gradchain::prelude::*;

use super::{ELEMENT, WHOLE, WHOLE_WINDOWS, WINDOWS, family};

family! {
    conditionally_transform, ELEMENT, conditionally_transform(adam(0.1), step_lt(2));
    conditionally_mask, ELEMENT, conditionally_mask(adam(0.1), step_mod(2, 1));
    conditionally_mask_loss, WINDOWS, chain((conditionally_mask(adam(0.1), value_lt(2.0)), scale(0.5)));
    conditionally_in_chain, WHOLE,
        chain((trace(0.5), conditionally_transform(clip_by_global_norm(0.1), step_ge(1)), conditionally_mask(adam(0.1), step_ge(1))));
    freeze, ELEMENT, chain((adam(0.1), freeze(Mask::min_ndim(2))));
    freeze_after_norm, WHOLE, chain((trace(0.5), clip_by_global_norm(0.1), freeze(Mask::min_ndim(2)), sgd(0.1)));
    selective_transform, WHOLE, chain((clip_by_global_norm(0.1), selective_transform(adam(0.1), Mask::min_ndim(2))));
    snapshot, WHOLE, chain((sgd(0.1), snapshot("norm", GlobalNorm)));
    monitor, WHOLE, chain((
        trace(0.9),
        monitor().measure("norm", measure_with_ema(GlobalNorm, 0.9)).measure("sum", TreeSum),
        clip_by_global_norm(0.1),
        snapshot("clipped", GlobalNorm),
        adam(0.1),
    ));
    flatten, WHOLE, flatten(adam(0.1));
    flatten_lamb, WHOLE, flatten(lamb(0.1).weight_decay(0.1));
    flatten_in_chain, WHOLE, chain((trace(0.5), flatten(chain((clip_by_block_rms(0.1), multi_steps(adam(0.1), 1)))), scale(0.5)));
    flatten_lbfgs, WHOLE_WINDOWS, flatten(lbfgs());
    sam, WHOLE, sam(adamw(0.1), chain((clip_by_global_norm(0.1), sgd(0.5))));
    sam_lamb, WHOLE, sam(lamb(0.1), trace(0.5)).sync_period(3).reset_state(false);
    sam_of_matrices, WHOLE, sam(chain((scale_by_factored_rms(), scale(-0.1))), normalize());
    sam_opaque, WHOLE_WINDOWS, sam(adamw(0.1), chain((clip_by_global_norm(0.1), adam(0.01)))).sync_period(3).opaque_mode();
    scale_by_sophia, WHOLE, scale_by_sophia(clip_by_global_norm(0.5)).update_interval(2);
    sophia, WHOLE, sophia(0.1, scale(0.5)).update_interval(2).weight_decay_mask(Mask::min_ndim(2));
    sophia_without_clipping, WHOLE, sophia(0.1, scale(0.5)).without_clipping().eps(0.1).mu_dtype(gradchain::DType::F64);
    sophia_hutchinson, WHOLE_WINDOWS, sophia(0.1, hutchinson_estimator_diag_hessian(3)).update_interval(2);
    hutchinson_estimator_diag_hessian, WHOLE_WINDOWS, chain((hutchinson_estimator_diag_hessian(3), clip(1.0), scale(0.1)));
    params_ema, ELEMENT, params_ema(adam(0.1), 0.9);
    params_ema_of_passes, WHOLE, params_ema(chain((clip_by_global_norm(0.1), adamw(0.1))), 0.9).debias(true).update_every(2);
    params_ema_in_chain, WHOLE, chain((trace(0.5), params_ema(sgd(0.1), 0.9).warmup(true), clip_by_global_norm(0.1)));
    params_ema_boxed, ELEMENT, params_ema(boxed(sgd(0.1).momentum(0.9)), 0.5).accumulator_dtype(gradchain::DType::F64);
    params_swa, ELEMENT, params_swa(adam(0.1)).start(1);
    params_swa_of_mini_steps, WINDOWS, params_swa(multi_steps(adam(0.1), 2)).every(2);
    skip_on_spike, WHOLE, skip_on_spike(adam(0.1), 1.0).warmup_steps(1);
    skip_on_spike_in_chain, WHOLE, chain((ema(0.5), skip_on_spike(chain((clip_by_global_norm(0.1), adam(0.1))), 0.0).warmup_steps(1), scale(0.5)));
    skip_on_spike_loss, WINDOWS, skip_on_spike(adam(0.1), 6.0).of_loss();
}
