//! Optimizers that scale each element by what its gradients have been, and their parts.

use super::registry::{Either, family};
use crate::optimizer::*;
use crate::schedule::Hyperparam;
use crate::select::Mask;
use crate::transform::*;

family! { |a|
    "adagrad" => adagrad(a.required::<Hyperparam>("learning_rate")?),
    "amsgrad" => amsgrad(a.required::<Hyperparam>("learning_rate")?)
        .mu_dtype(a.or::<Option<_>>("mu_dtype", None)?)
        .bias_correction_mu(a.or("bias_correction_mu", true)?)
        .bias_correction_nu(a.or("bias_correction_nu", true)?),
    "nadam" => nadam(a.required::<Hyperparam>("learning_rate")?)
        .mu_dtype(a.or::<Option<_>>("mu_dtype", None)?)
        .nu_dtype(a.or::<Option<_>>("nu_dtype", None)?)
        .nesterov(a.or("nesterov", true)?),
    "nadamw" => nadamw(a.required::<Hyperparam>("learning_rate")?)
        .mask(a.or("mask", Mask::all())?)
        .mu_dtype(a.or::<Option<_>>("mu_dtype", None)?)
        .nu_dtype(a.or::<Option<_>>("nu_dtype", None)?)
        .nesterov(a.or("nesterov", true)?),
    // Without momentum what concerns it means nothing, as in Optax.
    "rmsprop" => {
        let plain = rmsprop(a.required::<Hyperparam>("learning_rate")?)
            .eps_in_sqrt(a.or("eps_in_sqrt", true)?)
            .bias_correction(a.or("bias_correction", false)?);
        let (centered, nesterov) = (a.or("centered", false)?, a.or("nesterov", false)?);
        match (centered, a.or::<Option<Hyperparam>>("momentum", None)?) {
            (false, None) => Either::This(Either::This(plain)),
            (true, None) => Either::This(Either::That(plain.centered())),
            (false, Some(momentum)) => Either::That(Either::This(plain.momentum(momentum).nesterov(nesterov))),
            (true, Some(momentum)) => Either::That(Either::That(plain.centered().momentum(momentum).nesterov(nesterov))),
        }
    },
    "scale_by_amsgrad" => scale_by_amsgrad()
        .mu_dtype(a.or::<Option<_>>("mu_dtype", None)?)
        .bias_correction_mu(a.or("bias_correction_mu", true)?)
        .bias_correction_nu(a.or("bias_correction_nu", true)?),
    "scale_by_rms" => scale_by_rms()
        .eps_in_sqrt(a.or("eps_in_sqrt", true)?)
        .bias_correction(a.or("bias_correction", false)?),
    "scale_by_rss" => scale_by_rss(),
    "scale_by_stddev" => scale_by_stddev()
        .eps_in_sqrt(a.or("eps_in_sqrt", true)?)
        .bias_correction(a.or("bias_correction", false)?),
}
