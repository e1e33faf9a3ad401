//! Noise, and differentially private gradients.

pub(in crate::config) mod per_example;

use crate::arguments::required;
use crate::config::boxed_members::boxed_members;
use crate::config::fields::Fields;
use crate::config::registry::{Registry, Unconfigured};
use crate::optimizer::noisy_sgd;
use crate::recipe::Result;
use crate::transform::{add_noise, stochastic_rounding};

pub(super) fn register(r: &mut Registry) {
    r.constructor("add_noise", |given| Ok(Unconfigured::named(add_noise(required(), required(), seed(given)?))))
        .reads(&["key", "seed"]);
    r.constructor("stochastic_rounding", |given| Ok(Unconfigured::named(stochastic_rounding(seed(given)?))))
        .reads(&["key", "seed"]);
    r.constructor("noisy_sgd", |given| Ok(boxed_members(noisy_sgd(required(), seed(given)?)))).reads(&["key", "seed"]);
}

/// Reads a key or a seed, as Optax does. The random numbers differ from Optax's.
fn seed(given: &Fields<'_>) -> Result<u64> {
    Ok(given.or::<Option<u64>>("seed", None)?.or(given.or("key", None)?).unwrap_or(0))
}
