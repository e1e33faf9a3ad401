//! What is given the loss: its value, or the loss as a function to search along.

use crate::config::registry::{Made, Registry};
use crate::transform::*;

pub(super) fn register(r: &mut Registry) {
    r.part(scale_by_polyak);
    // What a search did is in its state, so there is nothing to be verbose about, and gradients are kept by what
    // evaluates.
    r.choosing("scale_by_backtracking_linesearch", |given| {
        given.off("verbose")?;
        given.off("store_grad")?;
        Ok(Made::named(scale_by_backtracking_linesearch(1)))
    })
    .taking(&["verbose", "store_grad"]);
    r.choosing("scale_by_zoom_linesearch", |given| {
        given.off("verbose")?;
        Ok(Made::named(scale_by_zoom_linesearch(1)))
    })
    .taking(&["verbose"]);
}
