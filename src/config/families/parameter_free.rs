//! What finds its step size from how far the parameters have come.

use crate::config::registry::{Made, Registry};
use crate::optimizer::*;
use crate::transform::*;

pub(super) fn register(r: &mut Registry) {
    r.part(scale_by_cocob).part(scale_by_distance_over_gradients);
    // Whether there is a guess is so for good.
    r.choosing("dowg", |given| {
        let guessed = given.get("init_estim_sq_dist").is_some();
        Ok(Made::named(if guessed { dowg().init_estim_sq_dist(1.0) } else { dowg() }))
    });
}
