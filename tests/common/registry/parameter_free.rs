//! Optimizers that find their step size from the parameters' distance.

use gradchain::optimizer::{cocob, dadapt_adamw, dog, dowg, schedule_free_sgd};
use gradchain::prelude::*;
use gradchain::transform::{
    InitStep, ema, scale, scale_by_cocob, scale_by_distance_over_gradients, scale_by_dog, scale_by_dowg,
};

use super::{ELEMENT, WHOLE, family};

family! {
    scale_by_cocob, ELEMENT, scale_by_cocob();
    scale_by_distance_over_gradients, WHOLE, chain((scale_by_distance_over_gradients(), scale(-1.0)));
    scale_by_dog, WHOLE, scale_by_dog(InitStep::LearningRate(0.1));
    scale_by_dowg, WHOLE, scale_by_dowg();
    schedule_free_stored, ELEMENT, schedule_free_sgd().learning_rate(0.1).state_dtype(gradchain::DType::F32);
    cocob, ELEMENT, cocob().weight_decay(0.1).mask(Mask::min_ndim(2));
    dog, WHOLE, dog().weight_decay(0.1).mask(Mask::min_ndim(2));
    dowg, WHOLE, dowg().init_estim_sq_dist(0.1);
    prodigy, WHOLE, prodigy().estim_lr0(0.01).weight_decay(0.1);
    prodigy_in_chain, WHOLE, chain((ema(0.5), prodigy().estim_lr0(0.01), clip_by_global_norm(0.1)));
    dadapt_adamw, WHOLE, dadapt_adamw().estim_lr0(0.01).weight_decay(0.1);
    dadapt_adamw_in_chain, WHOLE, chain((clip_by_global_norm(1.0), dadapt_adamw().estim_lr0(0.01), scale(0.5)));
    schedule_free_sgd, ELEMENT, schedule_free_sgd().learning_rate(0.1).warmup_steps(3);
    schedule_free_adamw, ELEMENT, schedule_free_adamw().learning_rate(0.1).weight_decay(0.1);
}
