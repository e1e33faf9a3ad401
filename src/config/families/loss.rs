//! Transformations that use the value of the loss.

use crate::config::registry::Registry;
use crate::transform::*;

pub(super) fn register(r: &mut Registry) {
    r.part(scale_by_polyak);
}
