//! Scaling by norms and means of leaves or of the whole tree.

use crate::arguments::required;
use crate::config::registry::{Registry, Unconfigured};
use crate::internal::recipe::OneOrMore;
use crate::transform::*;

pub(super) fn register(r: &mut Registry) {
    r.constructor("adaptive_grad_clip", |given| {
        let axis = given.or::<Option<OneOrMore<isize>>>("axis", None)?.map(|axes| axes.0);
        Ok(Unconfigured::named(adaptive_grad_clip(required()).axis(axis)))
    })
    .reads(&["axis"]);
    r.part(centralize)
        .part(|| clip_by_block_norm(required()))
        .part(|| clip_by_block_rms(required()))
        .part(|| clip_by_global_norm(required()))
        .part(normalize)
        .part(normalize_by_update_norm)
        .part(scale_by_novograd)
        .part(scale_by_param_block_norm)
        .part(scale_by_param_block_rms)
        .part(scale_by_trust_ratio);
}
