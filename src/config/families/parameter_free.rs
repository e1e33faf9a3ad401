//! Step sizes from the distance that the parameters have come.

use crate::config::registry::Registry;
use crate::transform::*;

pub(super) fn register(r: &mut Registry) {
    r.part(scale_by_cocob).part(scale_by_distance_over_gradients);
}
