//! Transformations that scale each element by its earlier gradients.

use gradchain::optimizer::{
    acprop, adabelief, adadelta, adam_mini, adamaxw, adan, ademamix, adopt, amsgrad, cautious_adamw, madgrad, mars,
    nadam, nadamw, optimistic_adam, optimistic_adam_v2, stable_adamw,
};
use gradchain::prelude::*;
use gradchain::schedule::linear;
use gradchain::transform::{
    scale_by_acprop, scale_by_adadelta, scale_by_adam_mini, scale_by_adamax, scale_by_adan, scale_by_ademamix,
    scale_by_adopt, scale_by_amsgrad, scale_by_belief, scale_by_madgrad, scale_by_radam, scale_by_rms, scale_by_rss,
    scale_by_simplified_ademamix, scale_by_stable_adam, scale_by_stddev, scale_by_yogi,
};

use super::{ELEMENT, WHOLE, family};

family! {
    scale_by_acprop, ELEMENT, scale_by_acprop();
    scale_by_adadelta, ELEMENT, scale_by_adadelta();
    scale_by_adamax, ELEMENT, scale_by_adamax();
    scale_by_adan, ELEMENT, scale_by_adan();
    scale_by_ademamix, ELEMENT, scale_by_ademamix().alpha(linear(0.0, 6.0, 4));
    scale_by_adopt, ELEMENT, scale_by_adopt();
    scale_by_amsgrad, ELEMENT, scale_by_amsgrad().mu_dtype(gradchain::DType::F64);
    scale_by_belief, ELEMENT, scale_by_belief();
    scale_by_radam, ELEMENT, scale_by_radam().b2(0.75).threshold(4.0);
    scale_by_rms, ELEMENT, scale_by_rms();
    scale_by_rms_outside, ELEMENT, scale_by_rms().eps_in_sqrt(false).bias_correction(true);
    scale_by_rss, ELEMENT, scale_by_rss().initial_accumulator_value(0.0);
    scale_by_rss_outside, ELEMENT, scale_by_rss().eps_in_sqrt(false);
    scale_by_simplified_ademamix, ELEMENT, scale_by_simplified_ademamix().alpha(2.0);
    scale_by_stddev, ELEMENT, scale_by_stddev();
    scale_by_yogi, ELEMENT, scale_by_yogi();
    scale_by_madgrad, ELEMENT, scale_by_madgrad(linear(0.1, 0.0, 4));
    scale_by_stable_adam_mixed, WHOLE, scale_by_stable_adam().mu_dtype(gradchain::DType::F64).nu_dtype(gradchain::DType::F64);
    scale_by_adam_mini_mixed, WHOLE, scale_by_adam_mini().mu_dtype(gradchain::DType::F64);
    scale_by_adam, ELEMENT, scale_by_adam();
    scale_by_adam_nesterov, ELEMENT, scale_by_adam().nesterov(true).eps_root(1e-6);
    scale_by_adam_mixed, ELEMENT, scale_by_adam().mu_dtype(gradchain::DType::F64).nu_dtype(gradchain::DType::F32);
    acprop, ELEMENT, acprop(0.1).weight_decay(0.1).mask(Mask::min_ndim(2));
    adabelief, ELEMENT, adabelief(0.1).nesterov(true);
    adadelta, ELEMENT, adadelta(0.1).weight_decay(0.1);
    adamaxw, ELEMENT, adamaxw(0.1).mask(Mask::min_ndim(2));
    adan, ELEMENT, adan(0.1).weight_decay(0.1);
    ademamix, ELEMENT, ademamix(0.1).b3(linear(0.9, 0.999, 4));
    adopt, ELEMENT, adopt(0.1).nesterov(true);
    amsgrad, ELEMENT, amsgrad(0.1).bias_correction_nu(false);
    nadam, ELEMENT, nadam(0.1);
    nadam_of_growing_momentum, ELEMENT, nadam(0.1).momentum_decay(4e-3);
    nadamw, ELEMENT, nadamw(0.1).mask(Mask::min_ndim(2));
    optimistic_adam, ELEMENT, optimistic_adam(0.1);
    optimistic_adam_apart, ELEMENT, optimistic_adam(0.1).optimism(0.2);
    optimistic_adam_v2, ELEMENT, optimistic_adam_v2(linear(0.1, 0.01, 3));
    radam, ELEMENT, radam(0.1).nesterov(true);
    rmsprop, ELEMENT, rmsprop(0.1);
    rmsprop_centered, ELEMENT, rmsprop(0.1).centered();
    rmsprop_momentum, ELEMENT, rmsprop(0.1).momentum(0.9);
    rmsprop_all, ELEMENT, rmsprop(0.1).centered().momentum(0.9).nesterov(true).initial_scale(0.1);
    inject_rmsprop, ELEMENT, inject_hyperparams(rmsprop(linear(0.1, 0.0, 4)).momentum(0.9));
    madgrad, ELEMENT, madgrad(0.1).weight_decay(0.1);
    cautious_adamw, WHOLE, cautious_adamw(0.1);
    stable_adamw, WHOLE, stable_adamw(0.1).weight_decay(0.1).mask(Mask::min_ndim(2));
    adam_mini, WHOLE, adam_mini(0.1).weight_decay(0.1);
    mars, WHOLE, mars(0.1);
    adamw, ELEMENT, adamw(0.1).weight_decay(0.1).mask(Mask::min_ndim(2));
}
