//! What goes by the sign of each element.

use serde_json::{Value, json};

use crate::config::error::Result;
use crate::config::member::family;
use crate::config::node::{Node, Read};
use crate::optimizer::*;
use crate::schedule::Hyperparam;
use crate::select::Mask;
use crate::transform::*;

family! { |a|
    "cautious_lion" => cautious_lion(a.required::<Hyperparam>("learning_rate")?)
        .mask(a.or("mask", Mask::all())?)
        .mu_dtype(a.or::<Option<_>>("mu_dtype", None)?)
        .mode(a.or("mode", LionMode::default())?),
    "lion" => lion(a.required::<Hyperparam>("learning_rate")?)
        .mask(a.or("mask", Mask::all())?)
        .mu_dtype(a.or::<Option<_>>("mu_dtype", None)?)
        .mode(a.or("mode", LionMode::default())?),
    "rprop" => rprop(a.required::<Hyperparam>("learning_rate")?),
    "scale_by_lion" => scale_by_lion()
        .mu_dtype(a.or::<Option<_>>("mu_dtype", None)?)
        .mode(a.or("mode", LionMode::default())?),
    "scale_by_rprop" => scale_by_rprop(a.required::<Hyperparam>("learning_rate")?),
    "scale_by_sign" => scale_by_sign(),
    "sign_sgd" => sign_sgd(a.required::<Hyperparam>("learning_rate")?),
    "signum" => signum(a.required::<Hyperparam>("learning_rate")?)
        .accumulator_dtype(a.or::<Option<_>>("accumulator_dtype", None)?),
}

impl Read for LionMode {
    fn read(node: &Node<'_>) -> Result<LionMode> {
        node.choice(&[("hard", LionMode::Hard), ("smooth", LionMode::Smooth), ("refined", LionMode::Refined)])
    }

    fn schema() -> Value {
        json!({"enum": ["hard", "smooth", "refined"]})
    }

    fn example() -> Value {
        json!("hard")
    }
}
