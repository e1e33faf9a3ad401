//! Transformations that use the loss: its value, or the loss as a function to search along.

use crate::config::registry::{Registry, Unconfigured};
use crate::transform::*;

pub(super) fn register(r: &mut Registry) {
    r.part(scale_by_polyak);
    // The state records the search instead of `verbose`; the evaluator keeps gradients.
    r.constructor("scale_by_backtracking_linesearch", |given| {
        given.off("verbose")?;
        given.off("store_grad")?;
        Ok(Unconfigured::named(scale_by_backtracking_linesearch(1)))
    })
    .reads(&["verbose", "store_grad"]);
    r.constructor("scale_by_zoom_linesearch", |given| {
        given.off("verbose")?;
        Ok(Unconfigured::named(scale_by_zoom_linesearch(1)))
    })
    .reads(&["verbose"]);
}
