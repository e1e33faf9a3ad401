//! The common constructors, which the crate root and the prelude re-export. Each is also in the module of its subject.

#[cfg(feature = "minimize")]
#[cfg_attr(docsrs, doc(cfg(feature = "minimize")))]
pub use crate::optimizer::lbfgs;
pub use crate::optimizer::{
    adafactor, adagrad, adam, adamw, lamb, lion, muon, prodigy, radam, rmsprop, schedule_free_adamw, sgd,
};
pub use crate::transform::{
    add_decayed_weights, clip, clip_by_global_norm, scale_by_adam, scale_by_learning_rate, zero_nans,
};
pub use crate::wrapper::{
    apply_if_finite, boxed, chain, inject_hyperparams, lookahead, masked, multi_steps, named_chain, params_ema,
    partition, quantized,
};
