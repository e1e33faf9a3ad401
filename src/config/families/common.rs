//! Chains that configs often have, as one loop.
//!
//! Members of a chain that is put together at run time have a loop each, and updates go from one to the next through
//! the cache. The chains in here are compiled as a whole. Nothing else differs: state, paths, recipe and bits are those
//! of the chain of boxes.

use core::any::Any;

use crate::config::registry::Member;
use crate::engine::Stage;
use crate::needs::{Includes, ValueAndGradFn};
use crate::optimizer::{Adam, Adamw, Lion, Sgd};
use crate::transform::ClipByGlobalNorm;

/// A chain of these members.
pub(super) fn chain_of(members: Vec<Member>) -> Member {
    let common = clipped::<Adamw>(&members)
        .or_else(|| clipped::<Adam>(&members))
        .or_else(|| clipped::<Sgd>(&members))
        .or_else(|| clipped::<Lion>(&members));
    common.unwrap_or_else(|| Box::new(members))
}

/// The chain of a clip by the norm and an optimizer of this type, if the members are these.
fn clipped<T: Stage>(members: &[Member]) -> Option<Member>
where
    ValueAndGradFn: Includes<<(ClipByGlobalNorm, T) as Stage>::Needs>,
{
    let [clip, optimizer] = members else { return None };
    let [clip, optimizer]: [&dyn Any; 2] = [&**clip, &**optimizer];
    let clip = clip.downcast_ref::<ClipByGlobalNorm>()?.clone();
    Some(Box::new((clip, optimizer.downcast_ref::<T>()?.clone())))
}
