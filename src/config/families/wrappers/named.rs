//! What has named arguments and holds another transformation.

use serde_json::{Value, json};

use crate::config::error::Result;
use crate::config::member::family;
use crate::config::node::{Member, Node, Read};
use crate::schedule::Hyperparam;
use crate::wrapper::{cautious, mechanize, params_ema, params_swa, schedule_free};

family! { |a|
    "cautious" => cautious(a.required::<Optimizer>("inner")?.0).against_gradient(a.or("against_gradient", true)?),
    "mechanize" => mechanize(a.required::<Member>("base_optimizer")?).num_betas(a.or("num_betas", 6)?),
    "params_ema" => params_ema(a.required::<Member>("inner")?, a.required::<Hyperparam>("decay")?)
        .debias(a.or("debias", false)?)
        .warmup(a.or("warmup", false)?)
        .update_every(a.or("update_every", 1)?)
        .accumulator_dtype(a.or::<Option<_>>("accumulator_dtype", None)?),
    "params_swa" => params_swa(a.required::<Member>("inner")?)
        .start(a.or("start", 0)?)
        .every(a.or("every", 1)?)
        .accumulator_dtype(a.or::<Option<_>>("accumulator_dtype", None)?),
    "schedule_free" => schedule_free(a.required::<Member>("base_optimizer")?, a.required::<Hyperparam>("learning_rate")?)
        .state_dtype(a.or::<Option<_>>("state_dtype", None)?),
}

/// A transformation that goes against the gradient.
struct Optimizer(Member);

impl Read for Optimizer {
    fn read(node: &Node<'_>) -> Result<Optimizer> {
        node.read().map(Optimizer)
    }

    fn schema() -> Value {
        Member::schema()
    }

    fn example() -> Value {
        json!({"sgd": {"learning_rate": 0.5}})
    }
}
