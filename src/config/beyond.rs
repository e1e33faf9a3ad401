//! What Optax does not have.

use serde_json::{Value, json};

use super::error::Result;
use super::node::{Args, Node, Read};
use super::registry::{Member, family};
use crate::optimizer::*;
use crate::schedule::Hyperparam;
use crate::select::Mask;
use crate::transform::*;
use crate::wrapper::cautious;

family! { |a|
    "adam_mini" => adam_mini(a.required::<Hyperparam>("learning_rate")?)
        .mask(a.or("mask", Mask::all())?)
        .blocks(a.or("blocks", Blocks::default())?)
        .mu_dtype(a.or::<Option<_>>("mu_dtype", None)?),
    "cautious" => cautious(a.required::<Optimizer>("inner")?.0).against_gradient(a.or("against_gradient", true)?),
    "cautious_adamw" => cautious_adamw(a.required::<Hyperparam>("learning_rate")?)
        .mask(a.or("mask", Mask::all())?)
        .mu_dtype(a.or::<Option<_>>("mu_dtype", None)?)
        .nu_dtype(a.or::<Option<_>>("nu_dtype", None)?)
        .nesterov(a.or("nesterov", false)?),
    "cautious_lion" => cautious_lion(a.required::<Hyperparam>("learning_rate")?)
        .mask(a.or("mask", Mask::all())?)
        .mu_dtype(a.or::<Option<_>>("mu_dtype", None)?)
        .mode(a.or("mode", LionMode::default())?),
    "clip_by_block_norm" => clip_by_block_norm(a.required::<Hyperparam>("max_norm")?),
    "mars" => mars(a.required::<Hyperparam>("learning_rate")?)
        .mask(a.or("mask", Mask::all())?)
        .mu_dtype(a.or::<Option<_>>("mu_dtype", None)?)
        .nu_dtype(a.or::<Option<_>>("nu_dtype", None)?),
    "reduce_variance" => reduce_variance(),
    "scale_by_adam_mini" => scale_by_adam_mini()
        .blocks(a.or("blocks", Blocks::default())?)
        .mu_dtype(a.or::<Option<_>>("mu_dtype", None)?),
    "scale_by_shampoo" => scale_by_shampoo()
        .precondition_frequency(a.or("precondition_frequency", 10)?)
        .max_precond_dim(a.or("max_precond_dim", 1024)?)
        .weight_dimension_numbers(a.or("weight_dimension_numbers", WeightDimensionNumbers::default())?),
    "scale_by_soap" => scale_by_soap()
        .shampoo_beta(a.or::<Option<f64>>("shampoo_beta", None)?)
        .precondition_frequency(a.or("precondition_frequency", 10)?)
        .max_precond_dim(a.or("max_precond_dim", 10_000)?)
        .weight_dimension_numbers(a.or("weight_dimension_numbers", WeightDimensionNumbers::default())?),
    "scale_by_stable_adam" => scale_by_stable_adam()
        .mask(a.or("mask", Mask::all())?)
        .mu_dtype(a.or::<Option<_>>("mu_dtype", None)?)
        .nu_dtype(a.or::<Option<_>>("nu_dtype", None)?),
    "shampoo" => shampoo(a.required::<Hyperparam>("learning_rate")?)
        .mask(a.or("mask", Mask::all())?)
        .nesterov(a.or("nesterov", false)?)
        .accumulator_dtype(a.or::<Option<_>>("accumulator_dtype", None)?)
        .precondition_frequency(a.or("precondition_frequency", 10)?)
        .max_precond_dim(a.or("max_precond_dim", 1024)?)
        .weight_dimension_numbers(a.or("weight_dimension_numbers", WeightDimensionNumbers::default())?),
    "soap" => soap(a.required::<Hyperparam>("learning_rate")?)
        .mask(a.or("mask", Mask::all())?)
        .shampoo_beta(a.or::<Option<f64>>("shampoo_beta", None)?)
        .precondition_frequency(a.or("precondition_frequency", 10)?)
        .max_precond_dim(a.or("max_precond_dim", 10_000)?)
        .weight_dimension_numbers(a.or("weight_dimension_numbers", WeightDimensionNumbers::default())?),
    "stable_adamw" => stable_adamw(a.required::<Hyperparam>("learning_rate")?)
        .mask(a.or("mask", Mask::all())?)
        .mu_dtype(a.or::<Option<_>>("mu_dtype", None)?)
        .nu_dtype(a.or::<Option<_>>("nu_dtype", None)?),
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
