//! Element-wise operations: products, sums, bounds, means over time.

use crate::arguments::required;
use crate::config::registry::{Registry, Unconfigured};
use crate::optimizer::*;
use crate::schedule::constant;
use crate::select::Mask;
use crate::transform::*;
use crate::wrapper::masked;

pub(super) fn register(r: &mut Registry) {
    r.part(|| apply_every(1))
        .part(|| clip(required()))
        .part(|| ema(required()))
        .part(identity)
        .part(kahan_summation)
        .part(reduce_variance)
        .part(|| scale(required()))
        .part(|| scale_by_learning_rate(required()))
        .part(scale_by_optimistic_gradient)
        .part(|| scale_by_schedule(constant(0.0)))
        .part(set_to_zero)
        .part(|| trace(required()))
        .part(zero_nans);
    // Optax's has its own mask.
    r.constructor("add_decayed_weights", |given| {
        let decay = add_decayed_weights(0.0);
        let Some(mask) = given.get("mask") else { return Ok(Unconfigured::named(decay)) };
        Ok(Unconfigured::wrapping(masked(decay, mask.read::<Mask>()?)))
    })
    .ignored_keys(&["mask"]);
    // Without momentum its arguments are ignored, as in Optax.
    r.constructor("sgd", |given| {
        let plain = sgd(required());
        Ok(if given.get("momentum").is_some() {
            Unconfigured::named(plain.momentum(0.0))
        } else {
            Unconfigured::named(plain)
        })
    })
    .ignored_keys(&["momentum", "nesterov", "accumulator_dtype"]);
}
