//! From name to builder, and what happens to every transformation that is built.

use super::error::{ConfigError, Result};
use super::node::{Args, Asked, Node, Probe};
use super::{
    adaptive, anchored, beyond, elementwise, layerwise, linesearch, optimizers, parameter_free, projection, sign,
    wrappers,
};
use crate::engine::Stage;
use crate::needs::{Includes, ValueAndGradFn};
use crate::wrapper::{Argument, Arguments, Boxed};

/// A transformation of any needs: what they are is known once it is built.
pub(super) type Member = Boxed<ValueAndGradFn>;

/// The same, with named arguments, which can be injected.
pub(super) type Named = crate::wrapper::Named<ValueAndGradFn>;

/// A transformation: `{name: arguments}`.
pub(super) fn transformation(node: &Node<'_>) -> Result<Member> {
    let (name, inside) = node.single("a transformation: {name: arguments}")?;
    if let Some(built) = wrappers::build(name, &inside) {
        return built;
    }
    Ok(named(name, node, inside)?)
}

/// A transformation with named arguments.
pub(super) fn named(name: &str, node: &Node<'_>, inside: Node<'_>) -> Result<Named> {
    let a = &Args::new(name, inside)?;
    FAMILIES.iter().find_map(|(_, family)| family(a)).unwrap_or_else(|| Err(unknown(node, name)))
}

/// Builds what it has a name for.
type Family = fn(&Args<'_>) -> Option<Result<Named>>;

/// Names, and what builds them.
#[rustfmt::skip]
const FAMILIES: &[(&[&str], Family)] = &[
    (adaptive::NAMES, adaptive::build),
    (anchored::NAMES, anchored::build),
    (beyond::NAMES, beyond::build),
    (elementwise::NAMES, elementwise::build),
    (layerwise::NAMES, layerwise::build),
    (linesearch::NAMES, linesearch::build),
    (optimizers::NAMES, optimizers::build),
    (parameter_free::NAMES, parameter_free::build),
    (projection::NAMES, projection::build),
    (sign::NAMES, sign::build),
    (wrappers::named::NAMES, wrappers::named::build),
];

/// Names of Optax that are no transformations of gradients, and where they go.
const ELSEWHERE: &[(&str, &str)] = &[
    ("measure_with_ema", "one of the `measures` of a `monitor`"),
    ("skip_large_updates", "a `should_skip_update_fn` of `multi_steps`"),
];

fn unknown(node: &Node<'_>, name: &str) -> ConfigError {
    if wrappers::per_example::NAMES.contains(&name) {
        let found = format!("`{name}`, which takes one for each example and comes first: see `build_per_example`");
        return ConfigError::wrong(&node.place, "a transformation of gradients", found);
    }
    if let Some((_, place)) = ELSEWHERE.iter().find(|(known, _)| *known == name) {
        let found = format!("`{name}`, which is {place}");
        return ConfigError::wrong(&node.place, "a transformation of gradients", found);
    }
    ConfigError::unknown(&node.place, "transformation", name, names())
}

/// What the transformation of this name asks for.
pub(super) fn asked(name: &str) -> Vec<Asked> {
    let probe = Probe::default();
    let node = Node::probe(&probe);
    // Whether anything came of it does not matter: there was nothing to read.
    match wrappers::build(name, &node) {
        Some(_) => {}
        None => drop(named(name, &node.clone(), node)),
    }
    probe.into_asked()
}

/// Every name that can be built.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    let named = FAMILIES.iter().flat_map(|(names, _)| names.iter());
    named.chain(wrappers::NAMES).copied()
}

/// Sets every hyperparameter that is given under the name it has in the builder, refuses what is left over, checks the
/// ranges, and forgets the type.
fn finish<T>(a: &Args<'_>, mut transformation: T) -> Result<Named>
where
    T: Arguments + Clone + 'static,
    ValueAndGradFn: Includes<T::Needs>,
{
    let mut problem = None;
    transformation.arguments(&mut |name, argument| {
        let Argument::Hyperparam(hyperparam) = argument else { return };
        match a.hyperparam(name, hyperparam).filter(|node| !node.is_none()).map(|node| node.read()) {
            Some(Ok(given)) => *hyperparam = given,
            Some(Err(error)) => problem = problem.take().or(Some(error)),
            None => {}
        }
    });
    problem.map_or(Ok(()), Err)?;
    a.finish()?;
    if !a.is_probe() {
        transformation.validate().map_err(|error| ConfigError::refused(&a.node.place, error))?;
    }
    Ok(Box::new(transformation))
}

/// What can be finished: a transformation, or one of two.
pub(super) trait Finish {
    fn finish(self, a: &Args<'_>) -> Result<Named>;
}

impl<T> Finish for T
where
    T: Arguments + Clone + 'static,
    ValueAndGradFn: Includes<T::Needs>,
{
    fn finish(self, a: &Args<'_>) -> Result<Named> {
        finish(a, self)
    }
}

/// One of two, where an argument decides the type.
pub(super) enum Either<A, B> {
    This(A),
    That(B),
}

impl<A: Finish, B: Finish> Finish for Either<A, B> {
    fn finish(self, a: &Args<'_>) -> Result<Named> {
        match self {
            Either::This(this) => this.finish(a),
            Either::That(that) => that.finish(a),
        }
    }
}

/// Checks the ranges of the arguments and forgets the type.
pub(super) fn checked<T>(node: &Node<'_>, transformation: T) -> Result<Member>
where
    T: Stage + Clone + 'static,
    ValueAndGradFn: Includes<T::Needs>,
{
    if !node.is_probe() {
        transformation.validate().map_err(|error| ConfigError::refused(&node.place, error))?;
    }
    Ok(Box::new(transformation))
}

/// A list of names, each with the expression that builds it from its arguments `a`; hyperparameters that the builder has
/// under the same name are set by [`finish`].
macro_rules! family {
    (|$a:ident| $($name:literal => $build:expr,)*) => {
        pub(in crate::config) const NAMES: &[&str] = &[$($name),*];

        pub(in crate::config) fn build(
            $a: &$crate::config::node::Args<'_>,
        ) -> Option<$crate::config::error::Result<$crate::config::registry::Named>> {
            let build = || match $a.name {
                $($name => $crate::config::registry::Finish::finish($build, $a).map(Some),)*
                _ => Ok(None),
            };
            build().transpose()
        }
    };
}
pub(super) use family;
