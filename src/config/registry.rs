//! From name to builder.

use super::error::{ConfigError, Result};
use super::families::*;
use super::node::{Args, Asked, Known, Member, Named, Node, Probe};

/// Every name there is.
pub(super) const ALL: &dyn Known = &All;

#[derive(Debug)]
struct All;

/// Builds what it has a name for.
type Family = fn(&Args<'_>) -> Option<Result<Named>>;

/// Names, and what builds them.
#[rustfmt::skip]
const FAMILIES: &[(&[&str], Family)] = &[
    (adaptive::NAMES, adaptive::build),
    (curvature::NAMES, curvature::build),
    (elementwise::NAMES, elementwise::build),
    (loss::NAMES, loss::build),
    (matrix::NAMES, matrix::build),
    (noise::NAMES, noise::build),
    (norms::NAMES, norms::build),
    (parameter_free::NAMES, parameter_free::build),
    (projection::NAMES, projection::build),
    (sign::NAMES, sign::build),
    (watching::NAMES, watching::build),
    (wrappers::named::NAMES, wrappers::named::build),
];

/// The same, of what has no named arguments.
type Others = fn(&str, &Node<'_>) -> Option<Result<Member>>;

const OTHERS: &[(&[&str], Others)] =
    &[(watching::monitor::NAMES, watching::monitor::build), (wrappers::NAMES, wrappers::build)];

/// Names of Optax that are no transformations of gradients, and where they go.
const ELSEWHERE: &[(&str, &str)] = &[
    ("measure_with_ema", "one of the `measures` of a `monitor`"),
    ("skip_large_updates", "a `should_skip_update_fn` of `multi_steps`"),
];

impl Known for All {
    fn transformation(&self, node: &Node<'_>) -> Result<Member> {
        let (name, inside) = node.single("a transformation: {name: arguments}")?;
        if let Some(built) = other(name, &inside) {
            return built;
        }
        Ok(self.named(name, node, inside)?)
    }

    fn named(&self, name: &str, node: &Node<'_>, inside: Node<'_>) -> Result<Named> {
        if OTHERS.iter().any(|(names, _)| names.contains(&name)) {
            return Err(ConfigError::wrong(&node.place, "a transformation with hyperparameters", format!("`{name}`")));
        }
        let a = &Args::new(name, inside)?;
        FAMILIES.iter().find_map(|(_, family)| family(a)).unwrap_or_else(|| Err(unknown(node, name)))
    }

    fn asked(&self, name: &str) -> Vec<Asked> {
        let probe = Probe::default();
        let node = Node::probe(&probe, ALL);
        // Whether anything came of it does not matter: there was nothing to read.
        match other(name, &node) {
            Some(_) => {}
            None => drop(self.named(name, &node.clone(), node)),
        }
        probe.into_asked()
    }
}

/// What has no named arguments.
fn other(name: &str, node: &Node<'_>) -> Option<Result<Member>> {
    OTHERS.iter().find_map(|(_, build)| build(name, node))
}

fn unknown(node: &Node<'_>, name: &str) -> ConfigError {
    if noise::per_example::NAMES.contains(&name) {
        let found = format!("`{name}`, which takes one for each example and comes first: see `build_per_example`");
        return ConfigError::wrong(&node.place, "a transformation of gradients", found);
    }
    if let Some((_, place)) = ELSEWHERE.iter().find(|(known, _)| *known == name) {
        let found = format!("`{name}`, which is {place}");
        return ConfigError::wrong(&node.place, "a transformation of gradients", found);
    }
    ConfigError::unknown(&node.place, "transformation", name, names())
}

/// Every name that can be built.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    let named = FAMILIES.iter().flat_map(|(names, _)| names.iter());
    named.chain(OTHERS.iter().flat_map(|(names, _)| names.iter())).copied()
}
