//! From name to builder, and what happens to every transformation that is built.

use super::error::{ConfigError, Result};
use super::node::{Args, Node};
use super::{elementwise, optax, optimizers, projection, wrappers};
use crate::element::DType;
use crate::engine::Stage;
use crate::wrapper::{Argument, Arguments, Boxed, boxed, inject_hyperparams};

/// A transformation: `{name: arguments}`.
pub(super) fn transformation(node: &Node<'_>) -> Result<Boxed> {
    let (name, inside) = node.single("a transformation: {name: arguments}")?;
    if let Some(built) = wrappers::build(name, &inside) {
        return built;
    }
    named(name, node, inside, None)
}

/// A transformation with named arguments, which can be injected.
pub(super) fn named(name: &str, node: &Node<'_>, inside: Node<'_>, inject: Option<&Injection>) -> Result<Boxed> {
    let a = &Args::new(name, inside)?;
    FAMILIES.iter().find_map(|(_, family)| family(a, inject)).unwrap_or_else(|| Err(unknown(node, name)))
}

/// Builds what it has a name for.
type Family = fn(&Args<'_>, Option<&Injection>) -> Option<Result<Boxed>>;

/// Names, and what builds them.
#[rustfmt::skip]
const FAMILIES: &[(&[&str], Family)] = &[
    (elementwise::NAMES, elementwise::build),
    (optimizers::NAMES, optimizers::build),
    (projection::NAMES, projection::build),
];

/// How `inject_hyperparams` wraps.
pub(super) struct Injection {
    pub(super) static_args: Vec<String>,
    pub(super) hyperparam_dtype: Option<DType>,
}

fn unknown(node: &Node<'_>, name: &str) -> ConfigError {
    if optax::TRANSFORMS.contains(&name) {
        ConfigError::unsupported(&node.place, name)
    } else {
        ConfigError::unknown(&node.place, "transformation", name, names())
    }
}

/// Every name that can be built.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    let named = FAMILIES.iter().flat_map(|(names, _)| names.iter());
    named.chain(wrappers::NAMES).copied()
}

/// Sets every hyperparameter that is given under the name it has in the builder, refuses what is left over, checks the
/// ranges, and forgets the type.
fn finish<T: Arguments + Clone + 'static>(
    a: &Args<'_>,
    mut transformation: T,
    inject: Option<&Injection>,
) -> Result<Boxed> {
    let mut problem = None;
    transformation.arguments(&mut |name, argument| {
        let Argument::Hyperparam(hyperparam) = argument else { return };
        match a.get(name).filter(|node| !node.value.is_null()).map(|node| node.read()) {
            Some(Ok(given)) => *hyperparam = given,
            Some(Err(error)) => problem = problem.take().or(Some(error)),
            None => {}
        }
    });
    problem.map_or(Ok(()), Err)?;
    a.finish()?;
    let Some(Injection { static_args, hyperparam_dtype }) = inject else {
        return checked(&a.node, transformation);
    };
    let injected = inject_hyperparams(transformation).static_args(static_args);
    match hyperparam_dtype {
        Some(dtype) => checked(&a.node, injected.hyperparam_dtype(*dtype)),
        None => checked(&a.node, injected),
    }
}

/// What can be finished: a transformation, or one of two.
pub(super) trait Finish {
    fn finish(self, a: &Args<'_>, inject: Option<&Injection>) -> Result<Boxed>;
}

impl<T: Arguments + Clone + 'static> Finish for T {
    fn finish(self, a: &Args<'_>, inject: Option<&Injection>) -> Result<Boxed> {
        finish(a, self, inject)
    }
}

/// One of two, where an argument decides the type.
pub(super) enum Either<A, B> {
    This(A),
    That(B),
}

impl<A: Finish, B: Finish> Finish for Either<A, B> {
    fn finish(self, a: &Args<'_>, inject: Option<&Injection>) -> Result<Boxed> {
        match self {
            Either::This(this) => this.finish(a, inject),
            Either::That(that) => that.finish(a, inject),
        }
    }
}

/// Checks the ranges of the arguments and forgets the type.
pub(super) fn checked<T: Stage + Clone + 'static>(node: &Node<'_>, transformation: T) -> Result<Boxed> {
    transformation.validate().map_err(|error| ConfigError::refused(&node.place, error))?;
    Ok(boxed(transformation))
}

/// A list of names, each with the expression that builds it from its arguments `a`; hyperparameters that the builder has
/// under the same name are set by [`finish`].
macro_rules! family {
    (|$a:ident| $($name:literal => $build:expr,)*) => {
        pub(super) const NAMES: &[&str] = &[$($name),*];

        pub(super) fn build(
            $a: &$crate::config::node::Args<'_>,
            inject: Option<&$crate::config::registry::Injection>,
        ) -> Option<$crate::config::error::Result<$crate::wrapper::Boxed>> {
            let build = || match $a.name {
                $($name => $crate::config::registry::Finish::finish($build, $a, inject).map(Some),)*
                _ => Ok(None),
            };
            build().transpose()
        }
    };
}
pub(super) use family;
