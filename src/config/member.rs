//! Transformations as arguments of others, and what happens to every transformation that is built.

use serde_json::{Value, json};

use super::error::{ConfigError, Result};
use super::node::{Args, Member, Named, Node, Read};
use crate::engine::Stage;
use crate::needs::{Includes, ValueAndGradFn};
use crate::wrapper::{Argument, Arguments, Boxed, narrow};

impl Read for Member {
    fn read(node: &Node<'_>) -> Result<Member> {
        node.known.transformation(node)
    }

    fn schema() -> Value {
        json!({"$ref": "#/$defs/transformation"})
    }

    fn example() -> Value {
        json!({"identity": {}})
    }
}

/// A transformation that needs nothing besides gradients.
pub(super) struct Base(pub(super) Boxed);

impl Read for Base {
    fn read(node: &Node<'_>) -> Result<Base> {
        let narrowed = narrow(node.read::<Member>()?);
        narrowed.map(Base).map_err(|error| ConfigError::refused(&node.place, error))
    }
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

/// Reads arguments, and refuses those that were not asked for.
pub(super) fn with_arguments(
    name: &str,
    node: &Node<'_>,
    build: impl FnOnce(&Args<'_>) -> Result<Member>,
) -> Result<Member> {
    let a = Args::new(name, node.clone())?;
    let built = build(&a)?;
    a.finish()?;
    Ok(built)
}

/// A list of names, each with the expression that builds it from its arguments `a`; hyperparameters that the builder has
/// under the same name are set by [`finish`].
macro_rules! family {
    (|$a:ident| $($name:literal => $build:expr,)*) => {
        pub(in crate::config) const NAMES: &[&str] = &[$($name),*];

        pub(in crate::config) fn build(
            $a: &$crate::config::node::Args<'_>,
        ) -> Option<$crate::config::error::Result<$crate::config::node::Named>> {
            let build = || match $a.name {
                $($name => $crate::config::member::Finish::finish($build, $a).map(Some),)*
                _ => Ok(None),
            };
            build().transpose()
        }
    };
}
pub(super) use family;
