//! What takes a gradient for each example.

use crate::config::error::{ConfigError, Result};
use crate::config::member::checked;
use crate::config::node::{Args, Member, Node};
use crate::optimizer::sgd;
use crate::schedule::Hyperparam;
use crate::transform::{PerExample, differentially_private_aggregate};

/// Names of what is no transformation of gradients.
pub(in crate::config) const NAMES: &[&str] = &["differentially_private_aggregate", "dpsgd"];

/// Reads one of these, or a chain that begins with one.
pub(in crate::config) fn read(node: &Node<'_>) -> Result<PerExample<Member>> {
    let (name, inside) = node.single("a transformation: {name: arguments}")?;
    let a = || Args::new(name, inside.clone());
    match name {
        "chain" => {
            let members = inside.list()?;
            let Some((first, rest)) = members.split_first() else {
                return Err(inside.wrong("a list that begins with `differentially_private_aggregate`"));
            };
            let (first, last) = (read(first)?, rest.iter().map(Node::read).collect::<Result<Vec<Member>>>()?);
            let last = checked(&inside, last)?;
            Ok(first.map(|first| Box::new(vec![first, last]) as Member))
        }
        "differentially_private_aggregate" => {
            let a = a()?;
            let seed = a.or::<Option<u64>>("key", None)?.or(a.or("seed", None)?).unwrap_or(0);
            let aggregate = aggregate(&a, seed)?;
            a.finish()?;
            Ok(aggregate.then(Box::new(()) as Member))
        }
        "dpsgd" => {
            let a = a()?;
            let aggregate = aggregate(&a, a.required("seed")?)?;
            let plain = sgd(a.required::<Hyperparam>("learning_rate")?);
            let nesterov = a.or("nesterov", false)?;
            let inner = match a.or::<Option<Hyperparam>>("momentum", None)? {
                None => checked(&inside, plain)?,
                Some(momentum) => checked(&inside, plain.momentum(momentum).nesterov(nesterov))?,
            };
            a.finish()?;
            Ok(aggregate.then(inner))
        }
        other => Err(ConfigError::unknown(
            &node.place,
            "transformation of examples' gradients",
            other,
            NAMES.iter().copied(),
        )),
    }
}

fn aggregate(a: &Args<'_>, seed: u64) -> Result<PerExample<()>> {
    let [clip, noise] = [a.required::<Hyperparam>("l2_norm_clip")?, a.required::<Hyperparam>("noise_multiplier")?];
    Ok(differentially_private_aggregate(clip, noise, seed))
}
