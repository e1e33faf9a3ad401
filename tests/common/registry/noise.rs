//! Transformations with noise, including private ones of per-example gradients.

use gradchain::optimizer::noisy_sgd;
use gradchain::prelude::*;
use gradchain::transform::{add_noise, stochastic_rounding};

use super::{WHOLE, family};

family! {
    add_noise, WHOLE, add_noise(0.1, 0.55, 7);
    stochastic_rounding, WHOLE, chain((adam(0.1), stochastic_rounding(7)));
    noisy_sgd, WHOLE, noisy_sgd(0.1, 3);
}
