//! Transformations of per-example gradients.

use crate::config::registry::{Member, PER_EXAMPLE, Registry, checked};
use crate::optimizer::sgd;
use crate::recipe::{ConfigError, Fields, Node, Result};
use crate::schedule::Hyperparam;
use crate::transform::{PerExample, differentially_private_aggregate};

/// Reads one of these, or a chain that begins with one.
pub(in crate::config) fn read(registry: &Registry, node: &Node<'_>) -> Result<PerExample<Member>> {
    let (name, inside) = node.call()?;
    match name {
        "chain" => {
            let members = inside.list()?;
            let Some((first, rest)) = members.split_first() else {
                return Err(inside.wrong("a list that begins with `differentially_private_aggregate`"));
            };
            let first = read(registry, first)?;
            let last = rest.iter().map(|node| registry.read(node)).collect::<Result<Vec<Member>>>()?;
            let last = checked(&inside, Box::new(last))?;
            Ok(first.map(|first| Box::new(vec![first, last]) as Member))
        }
        "differentially_private_aggregate" => {
            let fields = inside.fields(&["l2_norm_clip", "noise_multiplier", "key", "seed"])?;
            let seed = fields.or::<Option<u64>>("key", None)?.or(fields.or("seed", None)?).unwrap_or(0);
            Ok(aggregate(&fields, seed)?.then(Box::new(()) as Member))
        }
        "dpsgd" => {
            let fields = inside.fields(&[
                "learning_rate",
                "l2_norm_clip",
                "noise_multiplier",
                "seed",
                "momentum",
                "nesterov",
            ])?;
            let aggregate = aggregate(&fields, fields.required("seed")?)?;
            let plain = sgd(fields.required::<Hyperparam>("learning_rate")?);
            let nesterov = fields.or("nesterov", false)?;
            let inner: Member = match fields.or::<Option<Hyperparam>>("momentum", None)? {
                None => Box::new(plain),
                Some(momentum) => Box::new(plain.momentum(momentum).nesterov(nesterov)),
            };
            Ok(aggregate.then(checked(&inside, inner)?))
        }
        other => {
            let what = "transformation of per-example gradients";
            Err(ConfigError::unknown(node.place(), what, other, PER_EXAMPLE.iter().copied()))
        }
    }
}

fn aggregate(fields: &Fields<'_>, seed: u64) -> Result<PerExample<()>> {
    let number = |name| fields.required::<Hyperparam>(name);
    Ok(differentially_private_aggregate(number("l2_norm_clip")?, number("noise_multiplier")?, seed))
}
