//! Chains that are common in configs, as one loop.
//!
//! Members of a chain built at run time have a loop each, and updates pass from one to the next through the cache. The
//! chains here are compiled as a whole. State, paths, recipe and results are those of the chain of boxes, bitwise
//! identical.

use core::any::Any;

use crate::GradientTransformation;
use crate::config::registry::Member;
use crate::needs::{Includes, ValueAndGradFn};
use crate::optimizer::{Adam, Adamw, Lion, Sgd};
use crate::transform::ClipByGlobalNorm;

pub(super) fn chain_of(members: Vec<Member>) -> Member {
    let common = clipped::<Adamw>(&members)
        .or_else(|| clipped::<Adam>(&members))
        .or_else(|| clipped::<Sgd>(&members))
        .or_else(|| clipped::<Lion>(&members));
    common.unwrap_or_else(|| Box::new(members))
}

/// Returns the chain of a norm clip and an optimizer of this type, if these are the members.
fn clipped<T: GradientTransformation>(members: &[Member]) -> Option<Member>
where
    ValueAndGradFn: Includes<<(ClipByGlobalNorm, T) as crate::internal::engine::Stage>::Needs>,
{
    let [clip, optimizer] = members else { return None };
    let [clip, optimizer]: [&dyn Any; 2] = [&**clip, &**optimizer];
    let clip = clip.downcast_ref::<ClipByGlobalNorm>()?.clone();
    Some(Box::new((clip, optimizer.downcast_ref::<T>()?.clone())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::GradientTransformation;
    use crate::config::families::ALL;
    use crate::config::own_loops::{OwnLoops, with_own_loops};
    use crate::recipe::{Node, Recipe};
    use crate::transform::Trace;

    /// Returns true if a config's chain of these members has this type.
    fn is<T: GradientTransformation>(names: &[&str]) -> bool {
        let member = |name: &&str| match *name {
            "clip_by_global_norm" => Recipe::call(name, [("max_norm", Recipe::Number(1.0))]),
            _ => Recipe::call(name, [("learning_rate", Recipe::Number(0.1))]),
        };
        let config = Recipe::map([("chain", Recipe::List(names.iter().map(member).collect()))]);
        let chain = ALL.read(&Node::root(&config, &*ALL)).expect("a config");
        (&*chain as &dyn Any).is::<T>()
    }

    #[test]
    fn common_chains_are_one_loop() {
        let clipped = |name| ["clip_by_global_norm", name];
        assert!(is::<(ClipByGlobalNorm, Adamw)>(&clipped("adamw")));
        assert!(is::<(ClipByGlobalNorm, Adam)>(&clipped("adam")));
        assert!(is::<(ClipByGlobalNorm, Sgd)>(&clipped("sgd")));
        assert!(is::<(ClipByGlobalNorm, Lion)>(&clipped("lion")));
    }

    #[test]
    fn common_optimizers_alone_have_passes_of_their_own() {
        let with_own_loops = |name: &str, rest: &[(&'static str, Recipe)]| {
            let rate = [("learning_rate", Recipe::Number(0.1))];
            let config = Recipe::call(name, rate.into_iter().chain(rest.iter().cloned()));
            with_own_loops(ALL.read(&Node::root(&config, &*ALL)).expect("a config"))
        };
        let is = |name, rest: &[_], right: fn(&dyn Any) -> bool| right(&*with_own_loops(name, rest) as &dyn Any);
        assert!(is("adamw", &[], |a| a.is::<OwnLoops<Adamw>>()));
        assert!(is("adam", &[], |a| a.is::<OwnLoops<Adam>>()));
        assert!(is("sgd", &[], |a| a.is::<OwnLoops<Sgd>>()));
        assert!(is("sgd", &[("momentum", Recipe::Number(0.9))], |a| a.is::<OwnLoops<Sgd<Trace>>>()));
        assert!(is("lion", &[], |a| a.is::<OwnLoops<Lion>>()));
        assert!(is("adamaxw", &[], |a| a.is::<crate::optimizer::Adamaxw>()));
        // It is indistinguishable from the inner transformation.
        let plain = crate::optimizer::adamw(0.1);
        let boxed = with_own_loops("adamw", &[]);
        assert_eq!((boxed.recipe(), boxed.describe()), (recipe(&plain), crate::macros::describe(&plain)));
    }

    fn recipe<T: GradientTransformation>(transformation: &T) -> Recipe {
        transformation.recipe()
    }

    #[test]
    fn other_chains_are_boxes() {
        assert!(is::<Vec<Member>>(&["adamw", "clip_by_global_norm"]));
        assert!(is::<Vec<Member>>(&["clip_by_global_norm", "adamax"]));
        assert!(is::<Vec<Member>>(&["clip_by_global_norm", "adamw", "adamw"]));
        assert!(is::<Vec<Member>>(&["adamw"]));
    }
}
