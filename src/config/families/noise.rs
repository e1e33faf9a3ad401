//! Noise, and differentially private gradients.

pub(in crate::config) mod per_example;

use crate::arguments::required;
use crate::config::fields::Fields;
use crate::config::in_parts::in_parts;
use crate::config::registry::{Made, Registry};
use crate::optimizer::noisy_sgd;
use crate::recipe::Result;
use crate::transform::{add_noise, stochastic_rounding};

pub(super) fn register(r: &mut Registry) {
    r.choosing("add_noise", |given| Ok(Made::named(add_noise(required(), required(), seed(given)?))))
        .taking(&["key", "seed"]);
    r.choosing("stochastic_rounding", |given| Ok(Made::named(stochastic_rounding(seed(given)?))))
        .taking(&["key", "seed"]);
    r.choosing("noisy_sgd", |given| Ok(in_parts(noisy_sgd(required(), seed(given)?)))).taking(&["key", "seed"]);
}

/// Reads a key or a seed, as Optax does. The random numbers differ from Optax's.
fn seed(given: &Fields<'_>) -> Result<u64> {
    Ok(given.or::<Option<u64>>("seed", None)?.or(given.or("key", None)?).unwrap_or(0))
}
