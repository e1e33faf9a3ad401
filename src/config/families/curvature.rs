//! Curvature: differences of gradients, or an estimate of the Hessian's diagonal.

use crate::arguments::required;
use crate::config::boxed_members::boxed_members;
use crate::config::fields::Fields;
use crate::config::registry::{Member, Registry, Unconfigured};
use crate::optimizer::*;
use crate::recipe::Result;
use crate::transform::*;

pub(super) fn register(r: &mut Registry) {
    r.part(|| hutchinson_estimator_diag_hessian(0));
    r.constructor("scale_by_sophia", |given| {
        let scaled = scale_by_sophia(diagonal(given)?);
        let clips = given.get("clip_threshold").is_some() || !given.has("clip_threshold");
        Ok(Unconfigured::named(if clips { scaled } else { scaled.without_clipping() }))
    })
    .reads(&["hessian_diagonal_fn"]);
    // The win rate is in the state instead of being printed.
    r.constructor("sophia", |given| {
        let scaled = sophia(required(), diagonal(given)?);
        let clips = given.get("clip_threshold").is_some() || !given.has("clip_threshold");
        Ok(boxed_members(if clips { scaled } else { scaled.without_clipping() }))
    })
    .reads(&["hessian_diagonal_fn", "verbose", "print_win_rate_every_n_steps"]);
}

fn diagonal(given: &Fields<'_>) -> Result<Member> {
    let mut diagonal: Member = Box::new(hutchinson_estimator_diag_hessian(0));
    given.get("hessian_diagonal_fn").map_or(Ok(()), |node| node.build_into(&mut diagonal))?;
    Ok(diagonal)
}
