//! What Optax does not have.

use gradchain::prelude::*;

use super::{ELEMENT, WHOLE, family};

family! {
    cautious_adamw, WHOLE, cautious_adamw(0.1);
    cautious_lion, WHOLE, cautious_lion(0.1);
    cautious_of_passes, WHOLE, cautious(chain((sgd(0.1).momentum(0.9), clip_by_global_norm(1.0))));
    cautious_boxed, WHOLE, cautious(boxed(sgd(0.1).momentum(0.9)));
    stable_adamw, WHOLE, stable_adamw(0.1).weight_decay(0.1).mask(Mask::min_ndim(2));
    scale_by_stable_adam_mixed, WHOLE, scale_by_stable_adam().mu_dtype(gradchain::DType::F64).nu_dtype(gradchain::DType::F64);
    adam_mini, WHOLE, adam_mini(0.1).weight_decay(0.1);
    scale_by_adam_mini_mixed, WHOLE, scale_by_adam_mini().mu_dtype(gradchain::DType::F64);
    reduce_variance, ELEMENT, reduce_variance().gamma(0.5);
    clip_by_block_norm, WHOLE, chain((clip_by_block_norm(0.5), sgd(0.1)));
    mars, WHOLE, mars(0.1);
    soap, WHOLE, soap(0.1).precondition_frequency(2);
    scale_by_soap_one_side, WHOLE, scale_by_soap().max_precond_dim(3).shampoo_beta(0.5);
    shampoo, WHOLE, shampoo(0.1).precondition_frequency(2);
    scale_by_shampoo_mean, WHOLE, scale_by_shampoo().b2(0.9).max_precond_dim(3);
}
