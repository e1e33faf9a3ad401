//! What scales each element by what its gradients have been.

use serde_json::{Value, json};

use crate::config::error::Result;
use crate::config::member::{Either, family};
use crate::config::node::{Args, Node, Read};
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
    "adam" => adam(a.required::<Hyperparam>("learning_rate")?)
        .mu_dtype(a.or::<Option<_>>("mu_dtype", None)?)
        .nu_dtype(a.or::<Option<_>>("nu_dtype", None)?)
        .nesterov(a.or("nesterov", false)?),
    "adam_mini" => adam_mini(a.required::<Hyperparam>("learning_rate")?)
        .mask(a.or("mask", Mask::all())?)
        .blocks(a.or("blocks", Blocks::default())?)
        .mu_dtype(a.or::<Option<_>>("mu_dtype", None)?),
    "adamax" => adamax(a.required::<Hyperparam>("learning_rate")?),
    "adamaxw" => adamaxw(a.required::<Hyperparam>("learning_rate")?)
        .mask(a.or("mask", Mask::all())?),
    "adamw" => adamw(a.required::<Hyperparam>("learning_rate")?)
        .mask(a.or("mask", Mask::all())?)
        .mu_dtype(a.or::<Option<_>>("mu_dtype", None)?)
        .nu_dtype(a.or::<Option<_>>("nu_dtype", None)?)
        .nesterov(a.or("nesterov", false)?),
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
    "cautious_adamw" => cautious_adamw(a.required::<Hyperparam>("learning_rate")?)
        .mask(a.or("mask", Mask::all())?)
        .mu_dtype(a.or::<Option<_>>("mu_dtype", None)?)
        .nu_dtype(a.or::<Option<_>>("nu_dtype", None)?)
        .nesterov(a.or("nesterov", false)?),
    "madgrad" => madgrad(a.required::<Hyperparam>("learning_rate")?),
    "mars" => mars(a.required::<Hyperparam>("learning_rate")?)
        .mask(a.or("mask", Mask::all())?)
        .mu_dtype(a.or::<Option<_>>("mu_dtype", None)?)
        .nu_dtype(a.or::<Option<_>>("nu_dtype", None)?),
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
    "scale_by_adam" => scale_by_adam()
        .mu_dtype(a.or::<Option<_>>("mu_dtype", None)?)
        .nu_dtype(a.or::<Option<_>>("nu_dtype", None)?)
        .nesterov(a.or("nesterov", false)?),
    "scale_by_adam_mini" => scale_by_adam_mini()
        .blocks(a.or("blocks", Blocks::default())?)
        .mu_dtype(a.or::<Option<_>>("mu_dtype", None)?),
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
    "scale_by_madgrad" => scale_by_madgrad(a.required::<Hyperparam>("learning_rate")?),
    "scale_by_radam" => scale_by_radam().nesterov(a.or("nesterov", false)?),
    "scale_by_rms" => scale_by_rms()
        .eps_in_sqrt(a.or("eps_in_sqrt", true)?)
        .bias_correction(a.or("bias_correction", false)?),
    "scale_by_rss" => scale_by_rss(),
    "scale_by_simplified_ademamix" => scale_by_simplified_ademamix(),
    "scale_by_stable_adam" => scale_by_stable_adam()
        .mask(a.or("mask", Mask::all())?)
        .mu_dtype(a.or::<Option<_>>("mu_dtype", None)?)
        .nu_dtype(a.or::<Option<_>>("nu_dtype", None)?),
    "scale_by_stddev" => scale_by_stddev()
        .eps_in_sqrt(a.or("eps_in_sqrt", true)?)
        .bias_correction(a.or("bias_correction", false)?),
    "scale_by_yogi" => scale_by_yogi(),
    "simplified_ademamix" => simplified_ademamix(a.required::<Hyperparam>("learning_rate")?)
        .mask(a.or("mask", Mask::all())?),
    "stable_adamw" => stable_adamw(a.required::<Hyperparam>("learning_rate")?)
        .mask(a.or("mask", Mask::all())?)
        .mu_dtype(a.or::<Option<_>>("mu_dtype", None)?)
        .nu_dtype(a.or::<Option<_>>("nu_dtype", None)?),
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

/// `null` gives each leaf the blocks that follow from its shape; else `{"by_path": {path: "leaf" | {"axis", "groups"}}}`.
impl Read for Blocks {
    fn read(node: &Node<'_>) -> Result<Blocks> {
        const FORMS: &str = "null or {\"by_path\": ..}";
        if node.is_none() {
            return Ok(Blocks::default());
        }
        let ("by_path", inside) = node.single(FORMS)? else { return Err(node.wrong(FORMS)) };
        let each = |(path, node): (&str, Node<'_>)| Ok((String::from(path), node.read()?));
        Ok(Blocks::tree(inside.entries()?.into_iter().map(each).collect::<Result<Vec<_>>>()?))
    }

    fn schema() -> Value {
        let block = json!({"anyOf": [
            {"enum": ["leaf"]},
            {
                "type": "object",
                "properties": {"axis": isize::schema(), "groups": Option::<usize>::schema()},
                "required": ["axis"],
                "additionalProperties": false,
            },
        ]});
        let by_path = json!({"type": "object", "additionalProperties": block});
        json!({"anyOf": [
            {"enum": [null, "none"]},
            {"type": "object", "properties": {"by_path": by_path}, "required": ["by_path"], "additionalProperties": false},
        ]})
    }

    fn example() -> Value {
        json!(null)
    }
}

impl Read for Block {
    fn read(node: &Node<'_>) -> Result<Block> {
        if node.value.is_string() {
            return node.choice(&[("leaf", Block::Leaf)]);
        }
        let a = Args::new("a block", node.clone())?;
        let axis = a.required("axis")?;
        let block = match a.or::<Option<usize>>("groups", None)? {
            None => Block::Axis(axis),
            Some(groups) => Block::Groups { axis, groups },
        };
        a.finish()?;
        Ok(block)
    }
}
