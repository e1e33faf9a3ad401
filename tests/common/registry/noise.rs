//! What adds noise, and what makes gradients of examples private with it.

use gradchain::prelude::*;

use super::{WHOLE_WINDOWS, family};

family! {
    // Parts.
    add_noise, WHOLE_WINDOWS, add_noise(0.1, 0.55, 7);
    stochastic_rounding, WHOLE_WINDOWS, chain((adam(0.1), stochastic_rounding(7)));
    // Optimizers.
    noisy_sgd, WHOLE_WINDOWS, noisy_sgd(0.1, 3);
}
