//! Elementwise transformations: products, sums, bounds, means over time.

use gradchain::prelude::*;
use gradchain::schedule::linear;
use gradchain::transform::{
    apply_every, ema, identity, kahan_summation, reduce_variance, scale, scale_by_optimistic_gradient,
    scale_by_schedule, set_to_zero, trace,
};

use super::{ELEMENT, family};

family! {
    scale_by_optimistic_gradient, ELEMENT, scale_by_optimistic_gradient();
    reduce_variance, ELEMENT, reduce_variance().gamma(0.5);
    identity, ELEMENT, identity();
    set_to_zero, ELEMENT, set_to_zero();
    scale, ELEMENT, scale(-0.5);
    scale_by_learning_rate, ELEMENT, scale_by_learning_rate(linear(0.1, 0.01, 3));
    scale_by_schedule, ELEMENT, scale_by_schedule(cosine_decay(0.1, 5));
    trace, ELEMENT, trace(0.9);
    trace_nesterov, ELEMENT, trace(0.9).nesterov(true);
    ema, ELEMENT, ema(0.9);
    add_decayed_weights, ELEMENT, add_decayed_weights(0.1);
    clip, ELEMENT, clip(0.3);
    zero_nans, ELEMENT, zero_nans();
    apply_every, ELEMENT, chain((apply_every(2), scale(-0.1)));
    kahan_summation, ELEMENT, chain((adam(0.1), kahan_summation()));
    sgd, ELEMENT, sgd(0.1);
    sgd_momentum, ELEMENT, sgd(0.1).momentum(0.9);
}
