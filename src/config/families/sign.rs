//! Transformations by the sign of each element.

use crate::arguments::required;
use crate::config::registry::Registry;
use crate::transform::*;

pub(super) fn register(r: &mut Registry) {
    r.part(scale_by_lion).part(|| scale_by_rprop(required())).part(scale_by_sign);
}
