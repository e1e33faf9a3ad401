//! Transformations of the feature `contrib`.

use crate::config::registry::{Registry, Unconfigured};
use crate::optimizer::dowg;
use crate::transform::{scale_by_acprop, scale_by_simplified_ademamix};
use crate::wrapper::mechanize;

pub(super) fn register(r: &mut Registry) {
    r.part(scale_by_acprop).part(scale_by_simplified_ademamix).wrapper(mechanize);
    // The type depends on the presence of an estimate.
    r.constructor("dowg", |given| {
        let guessed = given.get("init_estim_sq_dist").is_some();
        Ok(Unconfigured::named(if guessed { dowg().init_estim_sq_dist(1.0) } else { dowg() }))
    });
}
