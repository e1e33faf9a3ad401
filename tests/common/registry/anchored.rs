//! What measures how far parameters are from where they began.

use gradchain::prelude::*;

use super::{ELEMENT, WHOLE, family};

family! {
    scale_by_madgrad, ELEMENT, scale_by_madgrad(linear(0.1, 0.0, 4));
    madgrad, ELEMENT, madgrad(0.1).weight_decay(0.1);
    scale_by_cocob, ELEMENT, scale_by_cocob();
    cocob, ELEMENT, cocob().weight_decay(0.1).mask(Mask::min_ndim(2));
    scale_by_distance_over_gradients, WHOLE, chain((scale_by_distance_over_gradients(), scale(-1.0)));
    scale_by_dog, WHOLE, scale_by_dog(InitStep::LearningRate(0.1));
    dog, WHOLE, dog().weight_decay(0.1).mask(Mask::min_ndim(2));
    scale_by_dowg, WHOLE, scale_by_dowg();
    dowg, WHOLE, dowg().init_estim_sq_dist(0.1);
}
