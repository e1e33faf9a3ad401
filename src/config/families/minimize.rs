//! L-BFGS, and line searches along the loss as a function.

use crate::config::boxed_members::boxed_members;
use crate::config::registry::{Registry, Unconfigured, placeholder};
use crate::optimizer::lbfgs;
use crate::transform::{scale_by_backtracking_linesearch, scale_by_lbfgs, scale_by_zoom_linesearch};

pub(super) fn register(r: &mut Registry) {
    r.part(scale_by_lbfgs);
    // Missing: the default line search; `null`: none. Without a learning rate the direction is the step.
    r.constructor("lbfgs", |given| {
        Ok(match given.get("linesearch") {
            Some(search) => {
                let mut other = placeholder();
                search.build_into(&mut other)?;
                boxed_members(lbfgs().linesearch(other))
            }
            None if given.has("linesearch") => boxed_members(lbfgs().without_linesearch()),
            None => boxed_members(lbfgs()),
        })
    })
    .reads(&["linesearch"]);
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
