//! Wrappers, chains, and nestings of both.
//!
//! `differentially_private_aggregate` and `dpsgd` take per-example gradients, so
//! `tests/behaviour/wrappers_catalogue.rs` tests them instead.

use gradchain::optimizer::{dog, dowg, polyak_sgd, schedule_free_sgd, sign_sgd};
use gradchain::prelude::*;
use gradchain::schedule::linear;
use gradchain::transform::{
    clip_by_block_norm, clip_by_block_rms, ema, normalize, scale, scale_by_factored_rms, set_to_zero, trace,
};
use gradchain::wrapper::{
    allow, cautious, conditionally_mask, conditionally_transform, dynamic_loss_scale, flatten, freezable, freeze,
    graft, master, mechanize, params_swa, sam, schedule_free, selective_transform, skip_absent, skip_large_updates,
    skip_not_finite, skip_on_spike, step_ge, step_lt, step_mod, value_lt,
};

use super::{ELEMENT, WHOLE, family};

family! {
    empty_chain, ELEMENT, chain(());
    chain_of_four, WHOLE, chain((zero_nans(), clip_by_global_norm(1.0), adamw(0.1), scale(0.5)));
    state_before_barrier, WHOLE, chain((ema(0.5), clip_by_global_norm(0.1), trace(0.5), clip_by_global_norm(0.05)));
    nested_chain, WHOLE, chain((chain((zero_nans(), scale(2.0))), chain((clip_by_global_norm(1.0), adam(0.1)))));
    long_chain, ELEMENT, chain((
        scale(0.9), scale(0.9), scale(0.9), scale(0.9), scale(0.9), scale(0.9),
        ema(0.1), ema(0.2), ema(0.3), ema(0.4), ema(0.5), scale(-0.1),
    ));
    more_slots_than_fit, ELEMENT, allow(
        chain((adam(-1.0), adam(-1.0), adam(-1.0), adam(-1.0), adam(0.1))),
        [gradchain::WarningKind::NegativeRate],
    );
    named_chain, WHOLE, named_chain(["clip", "adam"], (clip_by_global_norm(1.0), adam(0.1)));
    run_time_chain, WHOLE, chain(vec![boxed(zero_nans()), boxed(clip_by_global_norm(1.0)), boxed(adamw(0.1))]);
    boxed_in_chain, WHOLE, chain((clip(0.5), boxed(chain((trace(0.9), clip_by_global_norm(0.1)))), adam(0.1)));
    masked, WHOLE, chain((masked(clip_by_global_norm(0.1), Mask::min_ndim(2)), adam(0.1)));
    masked_state, ELEMENT, chain((masked(scale_by_adam(), !Mask::min_ndim(2)), scale(-0.1)));
    frozen, ELEMENT, masked(adam(0.1), Mask::min_ndim(1)).freeze_others();
    freezable, ELEMENT, freezable(adam(0.1));
    skip_absent, ELEMENT, skip_absent(adam(0.1));
    skip_absent_of_matrices, WHOLE, skip_absent(chain((clip_by_global_norm(1.0), muon(0.1))));
    partition, WHOLE, partition(
        (("a", chain((clip_by_global_norm(0.1), adam(0.1)))), ("b", sgd(0.1)), ("c", set_to_zero())),
        Labels::by(|leaf| ["a", "b", "c"][leaf.ndim() % 3]),
    );
    partition_in_chain, WHOLE, chain((ema(0.5), partition(
        vec![("x", boxed(chain((trace(0.5), clip_by_global_norm(0.1))))), ("y", boxed(adam(0.1)))],
        Labels::by(|leaf| if leaf.ndim() == 1 { "x" } else { "y" }),
    ), scale(0.5)));
    multi_steps, ELEMENT, multi_steps(adam(0.1), 2);
    multi_steps_clip, WHOLE, multi_steps(chain((zero_nans(), clip_by_global_norm(1.0), adamw(0.1))), 3);
    multi_steps_in_chain, ELEMENT, chain((zero_nans(), multi_steps(adam(0.1), 2), scale(0.5)));
    multi_steps_then_decay, ELEMENT, chain((multi_steps(adam(0.1), 2), add_decayed_weights(-0.1)));
    multi_steps_skip, WHOLE, multi_steps(adam(0.1), 2).should_skip_update_fn(skip_not_finite());
    multi_steps_skip_large, WHOLE,
        multi_steps(chain((clip_by_global_norm(0.1), adam(0.1))), 2).should_skip_update_fn(skip_large_updates(1.0));
    multi_steps_nested, ELEMENT, multi_steps(multi_steps(sgd(0.1), 2).use_grad_mean(false), 2);
    inject_hyperparams, ELEMENT, inject_hyperparams(adamw(linear(0.1, 0.0, 4)).mask(Mask::min_ndim(1)));
    allow, ELEMENT, allow(adam(-0.1), [gradchain::WarningKind::NegativeRate]);
    apply_if_finite, WHOLE, apply_if_finite(adam(0.1), 3);
    apply_if_finite_in_chain, WHOLE, chain((ema(0.5), apply_if_finite(chain((clip_by_global_norm(0.1), adam(0.1))), 2)));
    dynamic_loss_scale, WHOLE, dynamic_loss_scale(adam(0.1)).init_scale(8.0).growth_interval(2);
    dynamic_loss_scale_in_chain, WHOLE, chain((
        ema(0.5),
        dynamic_loss_scale(chain((clip_by_global_norm(0.1), adam(0.1)))).init_scale(3.0).growth_factor(1.5),
        scale(0.5),
    ));
    dynamic_loss_scale_of_windows, WHOLE, dynamic_loss_scale(multi_steps(adam(0.1), 2)).growth_interval(1);
    windows_of_dynamic_loss_scale, WHOLE, multi_steps(dynamic_loss_scale(adam(0.1)).growth_interval(1), 2);
    lookahead, ELEMENT, lookahead(adam(0.1), 2, 0.5);
    lookahead_reset, ELEMENT, lookahead(sgd(0.1).momentum(0.9), 3, 0.5).reset_state(true);
    lookahead_reset_schedule_free, ELEMENT, lookahead(schedule_free_sgd().learning_rate(0.1), 2, 0.5).reset_state(true);
    lookahead_reset_dog, WHOLE, lookahead(dog(), 2, 0.5).reset_state(true);
    lookahead_reset_prodigy, WHOLE, lookahead(prodigy().estim_lr0(0.01), 2, 0.5).reset_state(true);
    lookahead_reset_settings, ELEMENT, lookahead(freezable(inject_hyperparams(adam(0.1))), 2, 0.5).reset_state(true);
    // It reads the parameters at a barrier.
    lookahead_reset_of_windows, WHOLE,
        skip_on_spike(lookahead(dowg(), 2, 0.5).reset_state(true), 6.0).warmup_steps(1);
    architecture_example, WHOLE, multi_steps(chain((
        zero_nans(),
        clip_by_global_norm(1.0),
        inject_hyperparams(adamw(warmup_cosine_decay(0.0, 3e-3, 100, 2_000).end_value(1e-5)).weight_decay(1e-2).mask(Mask::min_ndim(2)))
            .static_args(["mask"]),
    )), 4);
    optional_members, ELEMENT, chain((Some(trace(0.9)), None::<gradchain::transform::Ema>, Some(scale(-0.1))));
    cautious_of_passes, WHOLE, cautious(chain((sgd(0.1).momentum(0.9), clip_by_global_norm(1.0))));
    cautious_boxed, WHOLE, cautious(boxed(sgd(0.1).momentum(0.9)));
    master, ELEMENT, master(adamw(0.1));
    master_of_passes, WHOLE, chain((trace(0.5), master(chain((clip_by_global_norm(0.1), lamb(0.1).weight_decay(0.1))))));
    master_of_matrices, WHOLE, master(muon(0.1).weight_decay(0.1));
    master_of_windows, ELEMENT, master(multi_steps(adamw(0.1), 2));
    mechanize, WHOLE, mechanize(sgd(0.1)).s_init(0.1);
    mechanize_in_chain, WHOLE, chain((
        clip_by_global_norm(1.0),
        mechanize(chain((scale_by_adam(), clip_by_global_norm(0.5), scale(-0.1)))).s_init(0.1).num_betas(3),
        clip_by_global_norm(0.1),
    ));
    quantized, WHOLE, quantized(adamw(0.1)).min_elements(0);
    quantized_some, WHOLE, quantized(adamw(0.1)).min_elements(200).except(Mask::any_paths(["layer0/**"]));
    quantized_in_chain, WHOLE, chain((
        clip_by_global_norm(1.0),
        quantized(chain((trace(0.5), clip_by_global_norm(0.1), scale_by_adam()))).min_elements(0).logarithmic(true),
        scale(-0.1),
    ));
    schedule_free, ELEMENT, schedule_free(sgd(0.1), 0.1);
    schedule_free_in_chain, WHOLE, chain((
        clip_by_global_norm(1.0),
        schedule_free(chain((scale_by_adam(), clip_by_global_norm(0.5), scale(-0.1))), linear(0.1, 0.0, 4)).b1(0.5),
    ));
    conditionally_transform, ELEMENT, conditionally_transform(adam(0.1), step_lt(2));
    conditionally_mask, ELEMENT, conditionally_mask(adam(0.1), step_mod(2, 1));
    conditionally_mask_loss, ELEMENT, chain((conditionally_mask(adam(0.1), value_lt(2.0)), scale(0.5)));
    conditionally_in_chain, WHOLE,
        chain((trace(0.5), conditionally_transform(clip_by_global_norm(0.1), step_ge(1)), conditionally_mask(adam(0.1), step_ge(1))));
    freeze, ELEMENT, chain((adam(0.1), freeze(Mask::min_ndim(2))));
    freeze_after_norm, WHOLE, chain((trace(0.5), clip_by_global_norm(0.1), freeze(Mask::min_ndim(2)), sgd(0.1)));
    selective_transform, WHOLE, chain((clip_by_global_norm(0.1), selective_transform(adam(0.1), Mask::min_ndim(2))));
    flatten, ELEMENT, flatten(adam(0.1));
    flatten_lamb, WHOLE, flatten(lamb(0.1).weight_decay(0.1));
    flatten_in_chain, WHOLE, chain((trace(0.5), flatten(chain((clip_by_block_rms(0.1), multi_steps(adam(0.1), 1)))), scale(0.5)));
    flatten_lbfgs, WHOLE, flatten(lbfgs());
    graft, WHOLE, graft(adam(1.0), sgd(0.1).momentum(0.5));
    graft_in_chain, WHOLE, chain((
        clip_by_global_norm(1.0),
        graft(lamb(1.0).weight_decay(0.1), chain((clip_by_block_norm(0.1), adam(0.1)))),
        trace(0.5),
    ));
    graft_polyak, WHOLE, graft(sign_sgd(1.0), polyak_sgd());
    sam, WHOLE, sam(adamw(0.1), chain((clip_by_global_norm(0.1), sgd(0.5))));
    sam_lamb, WHOLE, sam(lamb(0.1), trace(0.5)).sync_period(3).reset_state(false);
    sam_of_matrices, WHOLE, sam(chain((scale_by_factored_rms(), scale(-0.1))), normalize());
    sam_opaque, WHOLE, sam(adamw(0.1), chain((clip_by_global_norm(0.1), adam(0.01)))).sync_period(3).opaque_mode();
    sam_dog, WHOLE, sam(lookahead(dog(), 1, 0.5).reset_state(true), dog());
    sam_schedule_free, ELEMENT, sam(sgd(0.1), schedule_free_sgd().learning_rate(0.1)).sync_period(3);
    sam_opaque_dog, WHOLE, sam(adam(0.1), dog()).sync_period(3).opaque_mode();
    params_ema, ELEMENT, params_ema(adam(0.1), 0.9);
    params_ema_of_passes, WHOLE, params_ema(chain((clip_by_global_norm(0.1), adamw(0.1))), 0.9).debias(true).update_every(2);
    params_ema_in_chain, WHOLE, chain((trace(0.5), params_ema(sgd(0.1), 0.9).warmup(true), clip_by_global_norm(0.1)));
    params_ema_boxed, ELEMENT, params_ema(boxed(sgd(0.1).momentum(0.9)), 0.5).accumulator_dtype(gradchain::DType::F64);
    params_swa, ELEMENT, params_swa(adam(0.1)).start(1);
    params_swa_of_mini_steps, ELEMENT, params_swa(multi_steps(adam(0.1), 2)).every(2);
    skip_on_spike, WHOLE, skip_on_spike(adam(0.1), 1.0).warmup_steps(1);
    skip_on_spike_in_chain, WHOLE, chain((ema(0.5), skip_on_spike(chain((clip_by_global_norm(0.1), adam(0.1))), 0.0).warmup_steps(1), scale(0.5)));
    skip_on_spike_loss, ELEMENT, skip_on_spike(adam(0.1), 6.0).of_loss();
}
