//! Adaptive optimizers: scaling of each element by its past gradients.

use crate::arguments::required;
use crate::config::boxed_members::boxed_members;
use crate::config::registry::{Registry, Unconfigured};
use crate::optimizer::*;
use crate::recipe::Recipe;
use crate::transform::*;

pub(super) fn register(r: &mut Registry) {
    r
        // Without a learning rate the sign is not flipped either: a rate of -1.
        .part(|| adadelta(-1.0))
        // `adam` and `adamw` with another default.
        .named("nadam", || Unconfigured::named(nadam(required())))
        .named("nadamw", || Unconfigured::named(nadamw(required())))
        .part(scale_by_adadelta)
        .part(scale_by_adam)
        .part(scale_by_adam_mini)
        .part(scale_by_adamax)
        .part(scale_by_adan)
        .part(scale_by_ademamix)
        .part(scale_by_adopt)
        .part(scale_by_amsgrad)
        .part(scale_by_belief)
        .part(|| scale_by_madgrad(required()))
        .part(scale_by_radam)
        .part(scale_by_rms)
        .part(scale_by_rss)
        .part(scale_by_stable_adam)
        .part(scale_by_stddev)
        .part(scale_by_yogi);
    // A schedule is no learning rate here, as in Optax.
    r.constructor("optimistic_adam", |given| {
        if let Some(node) = given.get("learning_rate").filter(|node| matches!(node.value(), Recipe::Map(_))) {
            return Err(node.wrong("a number"));
        }
        let plain = optimistic_adam(0.0).learning_rate(required());
        Ok(match given.get("optimism") {
            None => Unconfigured::named(plain),
            Some(_) => Unconfigured::named(plain.optimism(0.0)),
        })
    })
    .ignored_keys(&["optimism"]);
    // Without momentum its arguments are ignored, as in Optax.
    r.constructor("rmsprop", |given| {
        let plain = rmsprop(required());
        let momentum = given.get("momentum").is_some();
        Ok(match (given.or("centered", false)?, momentum) {
            (false, false) => boxed_members(plain),
            (true, false) => boxed_members(plain.centered()),
            (false, true) => Unconfigured::named(plain.momentum(0.0)),
            (true, true) => Unconfigured::named(plain.centered().momentum(0.0)),
        })
    })
    .reads(&["centered"])
    .ignored_keys(&["momentum", "nesterov"]);
}
