//! What adds noise, and what makes gradients of examples private with it.

pub(in crate::config) mod per_example;

use crate::config::member::family;
use crate::optimizer::noisy_sgd;
use crate::schedule::Hyperparam;
use crate::transform::add_noise;

family! { |a|
    // Optax takes either a key or a seed. Its random numbers are others, whichever it is.
    "add_noise" => {
        let seed = a.or::<Option<u64>>("seed", None)?.or(a.or("key", None)?).unwrap_or(0);
        add_noise(a.required::<Hyperparam>("eta")?, a.required::<Hyperparam>("gamma")?, seed)
    },
    // As for `add_noise`: a key or a seed.
    "noisy_sgd" => {
        let seed = a.or::<Option<u64>>("seed", None)?.or(a.or("key", None)?).unwrap_or(0);
        noisy_sgd(a.required::<Hyperparam>("learning_rate")?, seed)
    },
}
