//! The functions of first steps, which the root and the prelude re-export. All functions are in the module of their
//! subject.

pub use crate::optimizer::{
    adafactor, adagrad, adam, adamw, lamb, lbfgs, lion, muon, prodigy, radam, rmsprop, schedule_free_adamw, sgd,
};
pub use crate::transform::{
    add_decayed_weights, clip, clip_by_global_norm, scale_by_adam, scale_by_learning_rate, zero_nans,
};
pub use crate::wrapper::{
    apply_if_finite, boxed, chain, inject_hyperparams, lookahead, masked, multi_steps, named_chain, params_ema,
    partition, quantized,
};
