//! Transformations along the axes of a leaf: rows and columns, factors, singular values.

use gradchain::optimizer::{galore, rowwise_adagrad, shampoo, sm3, soap};
use gradchain::prelude::*;
use gradchain::schedule::linear;
use gradchain::transform::{
    Preconditioning, scale_by_factored_rms, scale_by_galore, scale_by_muon, scale_by_rowwise_rss, scale_by_shampoo,
    scale_by_shape, scale_by_sm3, scale_by_soap,
};

use super::{WHOLE, family};

fn matrices() -> Mask {
    Mask::min_ndim(2).and(!Mask::min_ndim(3))
}

family! {
    scale_by_soap_one_side, WHOLE, scale_by_soap().max_precond_dim(3).shampoo_beta(0.5);
    scale_by_shampoo_mean, WHOLE, scale_by_shampoo().b2(0.9).max_precond_dim(3);
    scale_by_factored_rms, WHOLE, scale_by_factored_rms().min_dim_size_to_factor(2_usize);
    scale_by_muon, WHOLE, masked(scale_by_muon(), matrices());
    scale_by_muon_spectral, WHOLE,
        masked(scale_by_muon().preconditioning(Preconditioning::Spectral).adaptive(true), matrices());
    scale_by_shape, WHOLE, masked(scale_by_shape(), matrices());
    scale_by_rowwise_rss, WHOLE, scale_by_rowwise_rss().initial_accumulator_value(0.1);
    scale_by_sm3, WHOLE, scale_by_sm3().b2(0.9);
    scale_by_galore, WHOLE, scale_by_galore().rank(2).update_proj_gap(2).base_optimizer(
        chain((clip_by_global_norm(1.0), scale_by_adam())),
    );
    soap, WHOLE, soap(0.1).precondition_frequency(2);
    shampoo, WHOLE, shampoo(0.1).precondition_frequency(2);
    adafactor, WHOLE, adafactor(0.1).min_dim_size_to_factor(2_usize).momentum(0.9).weight_decay_rate(0.1);
    muon, WHOLE, muon(0.1);
    inject_muon, WHOLE, inject_hyperparams(muon(linear(0.1, 0.0, 4)));
    sm3, WHOLE, sm3(0.1);
    rowwise_adagrad, WHOLE, rowwise_adagrad(0.1);
    galore, WHOLE, galore(0.1).rank(1);
}
