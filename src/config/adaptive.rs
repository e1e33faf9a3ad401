//! Optimizers that scale each element by what its gradients have been, and their parts.

use serde_json::{Value, json};

use super::error::Result;
use super::node::{Node, Read};
use super::registry::{Either, family};
use crate::optimizer::*;
use crate::schedule::Hyperparam;
use crate::select::Mask;
use crate::transform::*;

family! { |a|
    "acprop" => acprop(a.required::<Hyperparam>("learning_rate")?)
        .mask(a.or("mask", Mask::all())?),
    "adabelief" => adabelief(a.required::<Hyperparam>("learning_rate")?)
        .nesterov(a.or("nesterov", false)?),
    // Without a learning rate the sign is not flipped either: a rate of -1.
    "adadelta" => adadelta(a.or::<Option<Hyperparam>>("learning_rate", None)?.unwrap_or((-1.0).into()))
        .weight_decay_mask(a.or("weight_decay_mask", Mask::all())?),
    "adagrad" => adagrad(a.required::<Hyperparam>("learning_rate")?),
    "adamax" => adamax(a.required::<Hyperparam>("learning_rate")?),
    "adamaxw" => adamaxw(a.required::<Hyperparam>("learning_rate")?)
        .mask(a.or("mask", Mask::all())?),
    "adan" => adan(a.required::<Hyperparam>("learning_rate")?)
        .mask(a.or("mask", Mask::all())?),
    "ademamix" => ademamix(a.required::<Hyperparam>("learning_rate")?)
        .mask(a.or("mask", Mask::all())?)
        .mu_dtype(a.or::<Option<_>>("mu_dtype", None)?),
    "adopt" => adopt(a.required::<Hyperparam>("learning_rate")?)
        .mu_dtype(a.or::<Option<_>>("mu_dtype", None)?)
        .nesterov(a.or("nesterov", false)?)
        .use_clipping(a.or("use_clipping", true)?)
        .clip_value_fn(a.or("clip_value_fn", StepLimit::Power(0.25))?),
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
    // A schedule is no learning rate here, as in Optax.
    "optimistic_adam" => {
        let plain = optimistic_adam(a.required("learning_rate")?)
            .mu_dtype(a.or::<Option<_>>("mu_dtype", None)?)
            .nu_dtype(a.or::<Option<_>>("nu_dtype", None)?)
            .nesterov(a.or("nesterov", true)?);
        match a.or::<Option<Hyperparam>>("optimism", None)? {
            None => Either::This(plain),
            Some(optimism) => Either::That(plain.optimism(optimism)),
        }
    },
    "optimistic_adam_v2" => optimistic_adam_v2(a.required::<Hyperparam>("learning_rate")?)
        .mu_dtype(a.or::<Option<_>>("mu_dtype", None)?)
        .nu_dtype(a.or::<Option<_>>("nu_dtype", None)?)
        .nesterov(a.or("nesterov", true)?),
    "optimistic_gradient_descent" => optimistic_gradient_descent(a.required::<Hyperparam>("learning_rate")?),
    "radam" => radam(a.required::<Hyperparam>("learning_rate")?)
        .nesterov(a.or("nesterov", false)?),
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
    "scale_by_acprop" => scale_by_acprop(),
    "scale_by_adadelta" => scale_by_adadelta(),
    "scale_by_adamax" => scale_by_adamax(),
    "scale_by_adan" => scale_by_adan(),
    "scale_by_ademamix" => scale_by_ademamix().mu_dtype(a.or::<Option<_>>("mu_dtype", None)?),
    "scale_by_adopt" => scale_by_adopt()
        .mu_dtype(a.or::<Option<_>>("mu_dtype", None)?)
        .nesterov(a.or("nesterov", false)?)
        .use_clipping(a.or("use_clipping", true)?)
        .clip_value_fn(a.or("clip_value_fn", StepLimit::Power(0.25))?),
    "scale_by_amsgrad" => scale_by_amsgrad()
        .mu_dtype(a.or::<Option<_>>("mu_dtype", None)?)
        .bias_correction_mu(a.or("bias_correction_mu", true)?)
        .bias_correction_nu(a.or("bias_correction_nu", true)?),
    "scale_by_belief" => scale_by_belief().nesterov(a.or("nesterov", false)?),
    "scale_by_optimistic_gradient" => scale_by_optimistic_gradient(),
    "scale_by_radam" => scale_by_radam().nesterov(a.or("nesterov", false)?),
    "scale_by_rms" => scale_by_rms()
        .eps_in_sqrt(a.or("eps_in_sqrt", true)?)
        .bias_correction(a.or("bias_correction", false)?),
    "scale_by_rss" => scale_by_rss(),
    "scale_by_simplified_ademamix" => scale_by_simplified_ademamix(),
    "scale_by_stddev" => scale_by_stddev()
        .eps_in_sqrt(a.or("eps_in_sqrt", true)?)
        .bias_correction(a.or("bias_correction", false)?),
    "scale_by_yogi" => scale_by_yogi(),
    "simplified_ademamix" => simplified_ademamix(a.required::<Hyperparam>("learning_rate")?)
        .mask(a.or("mask", Mask::all())?),
    "yogi" => yogi(a.required::<Hyperparam>("learning_rate")?),
}

/// `{"power": p}` or `{"schedule": ..}`.
impl Read for StepLimit {
    fn read(node: &Node<'_>) -> Result<StepLimit> {
        const FORMS: &str = "{\"power\": ..} or {\"schedule\": ..}";
        match node.single(FORMS)? {
            ("power", inside) => inside.read().map(StepLimit::Power),
            ("schedule", inside) => inside.read().map(StepLimit::Schedule),
            _ => Err(node.wrong(FORMS)),
        }
    }

    fn schema() -> Value {
        let power = json!({"type": "object", "properties": {"power": f64::schema()}, "required": ["power"]});
        json!({"anyOf": [power, {"$ref": "#/$defs/scheduled"}]})
    }

    fn example() -> Value {
        json!({"power": 0.25})
    }
}
