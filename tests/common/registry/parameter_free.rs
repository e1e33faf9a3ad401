//! What finds its step size by itself.

use gradchain::prelude::*;

use super::{ELEMENT, WHOLE, family};

family! {
    polyak_sgd, WHOLE, polyak_sgd().f_min(0.5);
    polyak_sgd_plus, WHOLE, polyak_sgd().f_min(0.5).scaling(linear(0.5, 0.1, 4)).variant(PolyakVariant::SpsPlus);
    scale_by_polyak, WHOLE, chain((scale_by_polyak().max_learning_rate(0.1), scale(-1.0)));
    reduce_on_plateau, ELEMENT, chain((adam(0.1), reduce_on_plateau().factor(0.5).patience(1)));
    reduce_on_plateau_alone, ELEMENT, reduce_on_plateau().factor(0.5).patience(1).cooldown(1);
    momo, WHOLE, momo().learning_rate(0.1).weight_decay(0.1);
    momo_adapts, WHOLE, momo().learning_rate(0.1).lower_bound(-1.0).adapt_lower_bound(true);
    momo_adam, WHOLE, momo_adam().learning_rate(0.1).weight_decay(0.1);
    momo_in_chain, WHOLE, chain((clip_by_global_norm(1.0), momo(), clip_by_global_norm(0.1)));
    prodigy, WHOLE, prodigy().estim_lr0(0.01).weight_decay(0.1);
    prodigy_in_chain, WHOLE, chain((ema(0.5), prodigy().estim_lr0(0.01), clip_by_global_norm(0.1)));
    dadapt_adamw, WHOLE, dadapt_adamw().estim_lr0(0.01).weight_decay(0.1);
    dadapt_adamw_in_chain, WHOLE, chain((clip_by_global_norm(1.0), dadapt_adamw().estim_lr0(0.01), scale(0.5)));
    mechanize, WHOLE, mechanize(sgd(0.1)).s_init(0.1);
    mechanize_in_chain, WHOLE, chain((
        clip_by_global_norm(1.0),
        mechanize(chain((scale_by_adam(), clip_by_global_norm(0.5), scale(-0.1)))).s_init(0.1).num_betas(3),
        clip_by_global_norm(0.1),
    ));
    schedule_free, ELEMENT, schedule_free(sgd(0.1), 0.1);
    schedule_free_in_chain, WHOLE, chain((
        clip_by_global_norm(1.0),
        schedule_free(chain((scale_by_adam(), clip_by_global_norm(0.5), scale(-0.1))), linear(0.1, 0.0, 4)).b1(0.5),
    ));
    schedule_free_stored, ELEMENT, schedule_free_sgd().learning_rate(0.1).state_dtype(gradchain::DType::F32);
    schedule_free_sgd, ELEMENT, schedule_free_sgd().learning_rate(0.1).warmup_steps(3);
    schedule_free_adamw, ELEMENT, schedule_free_adamw().learning_rate(0.1).weight_decay(0.1);
}
