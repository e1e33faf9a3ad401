//! What has named arguments and holds another transformation.

use crate::config::registry::{Member, family};
use crate::optimizer::sophia;
use crate::schedule::Hyperparam;
use crate::select::Mask;
use crate::transform::{hutchinson_estimator_diag_hessian, scale_by_sophia};
use crate::wrapper::{params_ema, params_swa};

family! { |a|
    "hutchinson_estimator_diag_hessian" => hutchinson_estimator_diag_hessian(a.or("random_seed", 0)?)
        .step_size(a.or::<Option<f64>>("step_size", None)?),
    "params_ema" => params_ema(a.required::<Member>("inner")?, a.required::<Hyperparam>("decay")?)
        .debias(a.or("debias", false)?)
        .warmup(a.or("warmup", false)?)
        .update_every(a.or("update_every", 1)?)
        .accumulator_dtype(a.or::<Option<_>>("accumulator_dtype", None)?),
    "params_swa" => params_swa(a.required::<Member>("inner")?)
        .start(a.or("start", 0)?)
        .every(a.or("every", 1)?)
        .accumulator_dtype(a.or::<Option<_>>("accumulator_dtype", None)?),
    "scale_by_sophia" => {
        let scaled = scale_by_sophia(diagonal(a)?)
            .update_interval(a.or("update_interval", 10)?)
            .mu_dtype(a.or::<Option<_>>("mu_dtype", None)?);
        match a.or("clip_threshold", Some(Hyperparam::from(1.0)))? {
            Some(clip) => scaled.clip_threshold(clip),
            None => scaled.without_clipping(),
        }
    },
    "sophia" => {
        // The win rate is in the state; nothing is printed.
        a.or("verbose", false)?;
        a.or::<u64>("print_win_rate_every_n_steps", 0)?;
        let sophia = sophia(a.required::<Hyperparam>("learning_rate")?, diagonal(a)?)
            .weight_decay_mask(a.or("weight_decay_mask", Mask::all())?)
            .update_interval(a.or("update_interval", 10)?)
            .mu_dtype(a.or::<Option<_>>("mu_dtype", None)?);
        match a.or("clip_threshold", Some(Hyperparam::from(1.0)))? {
            Some(clip) => sophia.clip_threshold(clip),
            None => sophia.without_clipping(),
        }
    },
}

fn diagonal(a: &crate::config::node::Args<'_>) -> crate::config::error::Result<Member> {
    let given = a.or::<Option<Member>>("hessian_diagonal_fn", None)?;
    Ok(given.unwrap_or_else(|| Box::new(hutchinson_estimator_diag_hessian(0))))
}
