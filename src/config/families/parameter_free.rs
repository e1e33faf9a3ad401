//! Step sizes from the distance that the parameters have come.

use crate::config::registry::{Made, Registry};
use crate::optimizer::*;
use crate::transform::*;

pub(super) fn register(r: &mut Registry) {
    r.part(scale_by_cocob).part(scale_by_distance_over_gradients);
    // The type depends on the presence of an estimate.
    r.choosing("dowg", |given| {
        let guessed = given.get("init_estim_sq_dist").is_some();
        Ok(Made::named(if guessed { dowg().init_estim_sq_dist(1.0) } else { dowg() }))
    });
}
