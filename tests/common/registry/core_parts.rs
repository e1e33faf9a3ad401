//! The parts of the foundation, and nestings of them.

use gradchain::prelude::*;

use super::{ELEMENT, WHOLE, WHOLE_WINDOWS, WINDOWS, family};

/// What orthogonalizing is for.
fn matrices() -> Mask {
    Mask::min_ndim(2).and(!Mask::min_ndim(3))
}

family! {
    // Parts.
    identity, ELEMENT, identity();
    set_to_zero, ELEMENT, set_to_zero();
    scale, ELEMENT, scale(-0.5);
    scale_by_learning_rate, ELEMENT, scale_by_learning_rate(linear(0.1, 0.01, 3));
    scale_by_schedule, ELEMENT, scale_by_schedule(cosine_decay(0.1, 5));
    scale_by_adam, ELEMENT, scale_by_adam();
    scale_by_adam_nesterov, ELEMENT, scale_by_adam().nesterov(true).eps_root(1e-6);
    scale_by_adam_mixed, ELEMENT, scale_by_adam().mu_dtype(gradchain::DType::F64).nu_dtype(gradchain::DType::F32);
    trace, ELEMENT, trace(0.9);
    trace_nesterov, ELEMENT, trace(0.9).nesterov(true);
    ema, ELEMENT, ema(0.9);
    add_decayed_weights, ELEMENT, add_decayed_weights(0.1);
    clip, ELEMENT, clip(0.3);
    scale_by_lion, ELEMENT, scale_by_lion();
    keep_params_nonnegative, ELEMENT, keep_params_nonnegative();
    zero_nans, ELEMENT, zero_nans();
    clip_by_global_norm, WHOLE, clip_by_global_norm(0.5);
    scale_by_trust_ratio, WHOLE, scale_by_trust_ratio();
    clip_by_block_rms, WHOLE, clip_by_block_rms(0.2);
    scale_by_factored_rms, WHOLE, scale_by_factored_rms().min_dim_size_to_factor(2_usize);
    scale_by_lbfgs, WHOLE, scale_by_lbfgs();
    scale_by_muon, WHOLE, masked(scale_by_muon(), matrices());
    scale_by_muon_spectral, WHOLE,
        masked(scale_by_muon().preconditioning(Preconditioning::Spectral).adaptive(true), matrices());
    scale_by_shape, WHOLE, masked(scale_by_shape(), matrices());
    scale_by_param_block_rms, WHOLE, scale_by_param_block_rms();
    scale_by_lion_refined, ELEMENT, scale_by_lion().mode(LionMode::Refined);
    add_noise, WHOLE_WINDOWS, add_noise(0.1, 0.55, 7);
    // Optimizers.
    sgd, ELEMENT, sgd(0.1);
    sgd_momentum, ELEMENT, sgd(0.1).momentum(0.9);
    adam, ELEMENT, adam(0.1);
    adamw, ELEMENT, adamw(0.1).weight_decay(0.1).mask(Mask::min_ndim(2));
    lion, ELEMENT, lion(0.1);
    lamb, WHOLE, lamb(0.1);
    lbfgs, WHOLE, lbfgs().learning_rate(0.1).without_linesearch();
    adafactor, WHOLE, adafactor(0.1).min_dim_size_to_factor(2_usize).momentum(0.9).weight_decay_rate(0.1);
    muon, WHOLE, muon(0.1);
    inject_muon, WHOLE, inject_hyperparams(muon(linear(0.1, 0.0, 4)));
    // Chains and wrappers.
    empty_chain, ELEMENT, chain(());
    chain_of_four, WHOLE, chain((zero_nans(), clip_by_global_norm(1.0), adamw(0.1), scale(0.5)));
    state_before_barrier, WHOLE, chain((ema(0.5), clip_by_global_norm(0.1), trace(0.5), clip_by_global_norm(0.05)));
    nested_chain, WHOLE, chain((chain((zero_nans(), scale(2.0))), chain((clip_by_global_norm(1.0), adam(0.1)))));
    long_chain, ELEMENT, chain((
        scale(0.9), scale(0.9), scale(0.9), scale(0.9), scale(0.9), scale(0.9),
        ema(0.1), ema(0.2), ema(0.3), ema(0.4), ema(0.5), scale(-0.1),
    ));
    more_slots_than_fit, ELEMENT, chain((adam(-1.0), adam(-1.0), adam(-1.0), adam(-1.0), adam(0.1)));
    named_chain, WHOLE, named_chain(["clip", "adam"], (clip_by_global_norm(1.0), adam(0.1)));
    run_time_chain, WHOLE, chain(vec![boxed(zero_nans()), boxed(clip_by_global_norm(1.0)), boxed(adamw(0.1))]);
    boxed_in_chain, WHOLE, chain((clip(0.5), boxed(chain((trace(0.9), clip_by_global_norm(0.1)))), adam(0.1)));
    masked, WHOLE, chain((masked(clip_by_global_norm(0.1), Mask::min_ndim(2)), adam(0.1)));
    masked_state, ELEMENT, chain((masked(scale_by_adam(), !Mask::min_ndim(2)), scale(-0.1)));
    frozen, ELEMENT, masked(adam(0.1), Mask::min_ndim(1)).freeze_others();
    freezable, ELEMENT, freezable(adam(0.1));
    partition, WHOLE, partition(
        (("a", chain((clip_by_global_norm(0.1), adam(0.1)))), ("b", sgd(0.1)), ("c", set_to_zero())),
        Labels::by(|leaf| ["a", "b", "c"][leaf.ndim() % 3]),
    );
    partition_in_chain, WHOLE, chain((ema(0.5), partition(
        vec![("x", boxed(chain((trace(0.5), clip_by_global_norm(0.1))))), ("y", boxed(adam(0.1)))],
        Labels::by(|leaf| if leaf.ndim() == 1 { "x" } else { "y" }),
    ), scale(0.5)));
    multi_steps, WINDOWS, multi_steps(adam(0.1), 2);
    multi_steps_clip, WHOLE_WINDOWS, multi_steps(chain((zero_nans(), clip_by_global_norm(1.0), adamw(0.1))), 3);
    multi_steps_in_chain, WINDOWS, chain((zero_nans(), multi_steps(adam(0.1), 2), scale(0.5)));
    multi_steps_then_decay, WINDOWS, chain((multi_steps(adam(0.1), 2), add_decayed_weights(-0.1)));
    multi_steps_skip, WHOLE_WINDOWS, multi_steps(adam(0.1), 2).should_skip_update_fn(skip_not_finite());
    multi_steps_skip_large, WHOLE_WINDOWS,
        multi_steps(chain((clip_by_global_norm(0.1), adam(0.1))), 2).should_skip_update_fn(skip_large_updates(1.0));
    multi_steps_nested, WINDOWS, multi_steps(multi_steps(sgd(0.1), 2).use_grad_mean(false), 2);
    inject_hyperparams, ELEMENT, inject_hyperparams(adamw(linear(0.1, 0.0, 4)).mask(Mask::min_ndim(1)));
    apply_if_finite, WHOLE, apply_if_finite(adam(0.1), 3);
    apply_if_finite_in_chain, WHOLE, chain((ema(0.5), apply_if_finite(chain((clip_by_global_norm(0.1), adam(0.1))), 2)));
    lookahead, WINDOWS, lookahead(adam(0.1), 2, 0.5);
    lookahead_reset, WINDOWS, lookahead(sgd(0.1).momentum(0.9), 3, 0.5).reset_state(true);
    architecture_example, WHOLE_WINDOWS, multi_steps(chain((
        zero_nans(),
        clip_by_global_norm(1.0),
        inject_hyperparams(adamw(warmup_cosine_decay(0.0, 3e-3, 100, 2_000, 1e-5)).weight_decay(1e-2).mask(Mask::min_ndim(2)))
            .static_args(["mask"]),
    )), 4);
    optional_members, ELEMENT, chain((Some(trace(0.9)), None::<gradchain::transform::Ema>, Some(scale(-0.1))));
}
