//! What goes by curvature: by differences of gradients, or by an estimate of the Hessian's diagonal.

use serde_json::Value;

use crate::config::error::Result;
use crate::config::member::{Either, family};
use crate::config::node::{Args, Member, Node, Read};
use crate::optimizer::*;
use crate::schedule::Hyperparam;
use crate::select::Mask;
use crate::transform::*;

family! { |a|
    "hutchinson_estimator_diag_hessian" => hutchinson_estimator_diag_hessian(a.or("random_seed", 0)?)
        .step_size(a.or::<Option<f64>>("step_size", None)?),
    // A line search that is left out is the usual one, and `null` is none. Without a learning rate the direction is the step.
    "lbfgs" => {
        let plain = lbfgs()
            .learning_rate(a.or::<Option<Hyperparam>>("learning_rate", None)?.unwrap_or(1.0.into()))
            .memory_size(a.or("memory_size", 10)?)
            .scale_init_precond(a.or("scale_init_precond", true)?);
        match a.or("linesearch", Linesearch::Usual)? {
            Linesearch::Usual => Either::This(plain),
            Linesearch::Given(None) => Either::That(Either::This(plain.without_linesearch())),
            Linesearch::Given(Some(linesearch)) => Either::That(Either::That(plain.linesearch(linesearch))),
        }
    },
    "scale_by_lbfgs" => scale_by_lbfgs()
        .memory_size(a.or("memory_size", 10)?)
        .scale_init_precond(a.or("scale_init_precond", true)?),
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

fn diagonal(a: &Args<'_>) -> Result<Member> {
    let given = a.or::<Option<Member>>("hessian_diagonal_fn", None)?;
    Ok(given.unwrap_or_else(|| Box::new(hutchinson_estimator_diag_hessian(0))))
}

/// What decides how long the steps of L-BFGS are.
pub(in crate::config) enum Linesearch {
    /// What it has where nothing is said.
    Usual,
    /// This, or nothing.
    Given(Option<Member>),
}

impl Read for Linesearch {
    fn read(node: &Node<'_>) -> Result<Linesearch> {
        node.read().map(Linesearch::Given)
    }

    fn schema() -> Value {
        Option::<Member>::schema()
    }
}
