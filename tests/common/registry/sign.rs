//! Steps by sign, and sums of updates.

use gradchain::prelude::*;

use super::{ELEMENT, WHOLE_WINDOWS, WINDOWS, family};

family! {
    scale_by_sign, ELEMENT, scale_by_sign();
    sign_sgd, ELEMENT, sign_sgd(0.1);
    signum, ELEMENT, signum(linear(0.1, 0.0, 4));
    scale_by_rprop, ELEMENT, scale_by_rprop(0.1);
    rprop, ELEMENT, rprop(0.1).eta_plus(2.0).max_step_size(0.3);
    apply_every, WINDOWS, chain((apply_every(2), scale(-0.1)));
    noisy_sgd, WHOLE_WINDOWS, noisy_sgd(0.1, 3);
}
