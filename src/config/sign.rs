//! What goes by the sign of gradients, or adds them up, one element at a time.

use super::registry::family;
use crate::optimizer::*;
use crate::schedule::Hyperparam;
use crate::transform::*;

family! { |a|
    "apply_every" => apply_every(a.or("k", 1)?),
    // As for `add_noise`: a key or a seed.
    "noisy_sgd" => {
        let seed = a.or::<Option<u64>>("seed", None)?.or(a.or("key", None)?).unwrap_or(0);
        noisy_sgd(a.required::<Hyperparam>("learning_rate")?, seed)
    },
    "rprop" => rprop(a.required::<Hyperparam>("learning_rate")?),
    "scale_by_rprop" => scale_by_rprop(a.required::<Hyperparam>("learning_rate")?),
    "scale_by_sign" => scale_by_sign(),
    "sign_sgd" => sign_sgd(a.required::<Hyperparam>("learning_rate")?),
    "signum" => signum(a.required::<Hyperparam>("learning_rate")?)
        .accumulator_dtype(a.or::<Option<_>>("accumulator_dtype", None)?),
}
