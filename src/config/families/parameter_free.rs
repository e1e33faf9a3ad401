//! Step sizes from the distance that the parameters have come.

use crate::config::registry::{Registry, Unconfigured};
use crate::optimizer::*;
use crate::transform::*;

pub(super) fn register(r: &mut Registry) {
    r.part(scale_by_cocob).part(scale_by_distance_over_gradients);
    // The type depends on the presence of an estimate.
    r.constructor("dowg", |given| {
        let guessed = given.get("init_estim_sq_dist").is_some();
        Ok(Unconfigured::named(if guessed { dowg().init_estim_sq_dist(1.0) } else { dowg() }))
    });
}
