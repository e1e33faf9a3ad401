//! What finds its step size by itself: from the value of the loss, from the distance covered, by averaging.

use super::error::{ConfigError, Result};
use super::node::{Node, Read};
use super::registry::{Member, family};
use crate::optimizer::*;
use crate::schedule::Hyperparam;
use crate::transform::*;
use crate::wrapper::{mechanize, schedule_free};

family! { |a|
    "dadapt_adamw" => dadapt_adamw().betas(a.or("betas", (0.9, 0.999))?),
    "mechanize" => mechanize(a.required::<Member>("base_optimizer")?).num_betas(a.or("num_betas", 6)?),
    "momo" => momo().adapt_lower_bound(a.or("adapt_lower_bound", false)?),
    "momo_adam" => momo_adam().adapt_lower_bound(a.or("adapt_lower_bound", false)?),
    "polyak_sgd" => polyak_sgd().variant(a.or("variant", PolyakVariant::default())?),
    "prodigy" => {
        let prodigy = prodigy()
            .betas(a.or("betas", (0.9, 0.999))?)
            .safeguard_warmup(a.or("safeguard_warmup", false)?);
        match a.or::<Option<Hyperparam>>("beta3", None)? {
            None => prodigy,
            Some(beta3) => prodigy.beta3(beta3),
        }
    },
    "reduce_on_plateau" => reduce_on_plateau()
        .patience(a.or("patience", 10)?)
        .cooldown(a.or("cooldown", 0)?)
        .accumulation_size(a.or("accumulation_size", 1)?),
    "schedule_free" => schedule_free(a.required::<Member>("base_optimizer")?, a.required::<Hyperparam>("learning_rate")?)
        .state_dtype(a.or::<Option<_>>("state_dtype", None)?),
    "schedule_free_adamw" => schedule_free_adamw()
        .warmup_steps(a.or::<Option<u64>>("warmup_steps", None)?)
        .state_dtype(a.or::<Option<_>>("state_dtype", None)?),
    "schedule_free_sgd" => schedule_free_sgd()
        .warmup_steps(a.or::<Option<u64>>("warmup_steps", None)?)
        .state_dtype(a.or::<Option<_>>("state_dtype", None)?),
    "scale_by_polyak" => scale_by_polyak().variant(a.or("variant", PolyakVariant::default())?),
}

impl Read for PolyakVariant {
    fn read(node: &Node<'_>) -> Result<PolyakVariant> {
        PolyakVariant::from_name(node.text("a string")?).map_err(|error| ConfigError::refused(&node.place, error))
    }
}
