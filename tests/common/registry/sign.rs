//! Transformations by the sign of each element.

use gradchain::optimizer::{cautious_lion, rprop, signum};
use gradchain::schedule::linear;
use gradchain::transform::{LionMode, scale_by_lion, scale_by_rprop, scale_by_sign};

use super::{ELEMENT, WHOLE, family};

family! {
    scale_by_lion, ELEMENT, scale_by_lion();
    scale_by_lion_refined, ELEMENT, scale_by_lion().mode(LionMode::Refined);
    scale_by_sign, ELEMENT, scale_by_sign();
    scale_by_rprop, ELEMENT, scale_by_rprop(0.1);
    cautious_lion, WHOLE, cautious_lion(0.1);
    signum, ELEMENT, signum(linear(0.1, 0.0, 4));
    rprop, ELEMENT, rprop(0.1).eta_plus(2.0).max_step_size(0.3);
}
