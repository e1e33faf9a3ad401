//! Every transformation by the function that makes it, for the root and the prelude. Its type stays in the module it is
//! from.

pub use crate::optimizer::{
    acprop, adabelief, adadelta, adafactor, adagrad, adam, adam_mini, adamax, adamaxw, adamw, adan, ademamix, adopt,
    amsgrad, cautious_adamw, cautious_lion, cocob, dadapt_adamw, dog, dowg, dpsgd, fromage, lamb, lars, lbfgs, lion,
    madgrad, mars, momo, momo_adam, muon, nadam, nadamw, noisy_sgd, novograd, optimistic_adam, optimistic_adam_v2,
    optimistic_gradient_descent, polyak_sgd, prodigy, radam, rmsprop, rowwise_adagrad, rprop, schedule_free_adamw,
    schedule_free_sgd, sgd, sign_sgd, signum, simplified_ademamix, sm3, sophia, stable_adamw, yogi,
};
#[cfg(feature = "faer")]
#[cfg_attr(docsrs, doc(cfg(feature = "faer")))]
pub use crate::optimizer::{galore, shampoo, soap};
pub use crate::transform::{
    adaptive_grad_clip, add_decayed_weights, add_noise, apply_every, centralize, clip, clip_by_block_norm,
    clip_by_block_rms, clip_by_global_norm, differentially_private_aggregate, ema, hutchinson_estimator_diag_hessian,
    identity, kahan_summation, keep_params_nonnegative, measure_fn, measure_with_ema, measurements, monitor, normalize,
    normalize_by_update_norm, of_params, project, ratio, reduce_on_plateau, reduce_variance, scale, scale_by_acprop,
    scale_by_adadelta, scale_by_adam, scale_by_adam_mini, scale_by_adamax, scale_by_adan, scale_by_ademamix,
    scale_by_adopt, scale_by_amsgrad, scale_by_backtracking_linesearch, scale_by_belief, scale_by_cocob,
    scale_by_distance_over_gradients, scale_by_dog, scale_by_dowg, scale_by_factored_rms, scale_by_lbfgs,
    scale_by_learning_rate, scale_by_lion, scale_by_madgrad, scale_by_muon, scale_by_novograd,
    scale_by_optimistic_gradient, scale_by_param_block_norm, scale_by_param_block_rms, scale_by_polyak, scale_by_radam,
    scale_by_rms, scale_by_rowwise_rss, scale_by_rprop, scale_by_rss, scale_by_schedule, scale_by_shape, scale_by_sign,
    scale_by_simplified_ademamix, scale_by_sm3, scale_by_sophia, scale_by_stable_adam, scale_by_stddev,
    scale_by_trust_ratio, scale_by_yogi, scale_by_zoom_linesearch, set_to_zero, snapshot, stochastic_rounding, trace,
    zero_nans,
};
#[cfg(feature = "faer")]
#[cfg_attr(docsrs, doc(cfg(feature = "faer")))]
pub use crate::transform::{scale_by_galore, scale_by_shampoo, scale_by_soap};
pub use crate::wrapper::{
    allow, apply_if_finite, boxed, cautious, chain, conditionally_mask, conditionally_transform, dynamic_loss_scale,
    flatten, freezable, freeze, graft, inject_hyperparams, injected_hyperparams, lookahead, masked, master, mechanize,
    multi_steps, named_chain, narrow, params_ema, params_swa, partition, quantized, sam, schedule_free,
    selective_transform, sharded, skip_absent, skip_large_updates, skip_not_finite, skip_on_spike, step_ge, step_if,
    step_lt, step_mod, value_if, value_lt,
};
