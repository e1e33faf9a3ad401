//! Cases of schedules and functions, and of refused configs.

use gradchain::prelude::*;
use gradchain::projection::Operand;
use gradchain::tree::{
    DynTree, Norm, incremental_update, per_example_global_norm_clip, per_example_layer_norm_clip, periodic_update,
    tree_norm, tree_vdot,
};
use gradchain::{apply_updates, config, extra, needs};
use serde_json::{Map, Value};

use super::transform::{Stop, types_are_supported};
use super::tree::{self, Slack, Tolerance};

pub(crate) fn schedule(case: &Value) -> Result<(), Stop> {
    let schedule = config::schedule(&case["schedule"]).map_err(stop)?;
    let tolerance = Tolerance::read(case).map_err(Stop::Error)?;
    let lists = [&case["counts"], &case["expected"]].map(Value::as_array);
    let [Some(counts), Some(expected)] = lists else { return Err(Stop::Error("a case without `counts`".into())) };
    for (count, expected) in counts.iter().zip(expected) {
        let count = count.as_u64().ok_or_else(|| Stop::Error(format!("the count {count}")))?;
        let (expected, found) = (tree::number(expected).map_err(Stop::Error)?, schedule.at(count));
        if !tolerance.agrees(expected, found) {
            return Err(Stop::Error(format!("at {count}: expected {expected:?}, found {found:?}")));
        }
    }
    Ok(())
}

pub(crate) struct Given<'a> {
    pub(crate) trees: &'a Value,
    pub(crate) args: &'a Value,
}

impl Given<'_> {
    fn tree(&self, name: &str) -> Result<DynTree, Stop> {
        read(&self.trees[name])
    }

    pub(crate) fn number(&self, name: &str) -> Result<f64, Stop> {
        tree::number(&self.args[name]).map_err(|error| Stop::Error(format!("argument `{name}`: {error}")))
    }

    pub(crate) fn number_or(&self, name: &str, default: f64) -> Result<f64, Stop> {
        if self.args[name].is_null() { Ok(default) } else { self.number(name) }
    }

    fn integer(&self, name: &str) -> Result<u64, Stop> {
        self.args[name].as_u64().ok_or_else(|| Stop::Error(format!("argument `{name}`: {}", self.args[name])))
    }

    pub(crate) fn operand(&self, name: &str) -> Result<Operand, Stop> {
        match &self.args[name]["tree"] {
            Value::Null => self.number(name).map(Operand::from),
            tree => Ok(Operand::from(&read(tree)?)),
        }
    }
}

/// Returns a tree whose dtypes this build has.
pub(crate) fn read(tree: &Value) -> Result<DynTree, Stop> {
    let leaves = tree::read(tree).map_err(Stop::Error)?;
    if !types_are_supported(leaves.values()) {
        return Err(Stop::Skipped("the feature `half`".into()));
    }
    Ok(tree::dynamic(&leaves))
}

enum Gives {
    Tree(DynTree),
    Value(f64),
    /// A sum, and the number of clipped examples: in all, or by leaf.
    Clipped(DynTree, Value),
}

pub(crate) fn function(case: &Value) -> Result<(), Stop> {
    let tolerance = Tolerance::read(case).map_err(Stop::Error)?;
    let expected = &case["expected"];
    match call(case)? {
        Gives::Tree(found) => compare(tolerance, &expected["tree"], found),
        Gives::Value(found) => {
            let expected = tree::number(&expected["value"]).map_err(Stop::Error)?;
            match tolerance.agrees(expected, found) {
                true => Ok(()),
                false => Err(Stop::Error(format!("expected {expected:?}, found {found:?}"))),
            }
        }
        Gives::Clipped(_, clipped) if clipped != expected["num_clipped"] => {
            Err(Stop::Error(format!("num_clipped: expected {}, found {clipped}", expected["num_clipped"])))
        }
        Gives::Clipped(sum, _) => compare(tolerance, &expected["tree"], sum),
    }
}

fn call(case: &Value) -> Result<Gives, Stop> {
    let name = case["function"].as_str().unwrap_or_default();
    let given = Given { trees: &case["trees"], args: &case["args"] };
    let clip_of = |argument| -> Result<_, Stop> {
        let grads = given.tree("grads")?;
        Ok((without_first_axis(&grads), grads, given.number(argument)?))
    };
    Ok(match name {
        "apply_updates" => {
            let mut params = given.tree("params")?;
            apply_updates(&mut params, &given.tree("updates")?).map_err(error)?;
            Gives::Tree(params)
        }
        "global_norm" => Gives::Value(tree_norm(&given.tree("updates")?)),
        "tree_norm" => {
            let norm = match given.args["ord"].as_f64() {
                Some(1.0) => Norm::L1,
                None if given.args["ord"] == "inf" => Norm::Linf,
                None if given.args["ord"].is_null() => Norm::L2,
                Some(2.0) => Norm::L2,
                _ => return Err(Stop::Error(format!("the norm {}", given.args["ord"]))),
            };
            let tree = given.tree("tree")?;
            Gives::Value(if given.args["squared"] == true { norm.squared(&tree) } else { norm.of(&tree) })
        }
        "tree_vdot" => Gives::Value(tree_vdot(&given.tree("tree_x")?, &given.tree("tree_y")?).map_err(error)?),
        "incremental_update" => {
            let (new, mut old) = (given.tree("new_tensors")?, given.tree("old_tensors")?);
            incremental_update(&new, &mut old, given.number("step_size")?).map_err(error)?;
            Gives::Tree(old)
        }
        "periodic_update" => {
            let (new, mut old) = (given.tree("new_tensors")?, given.tree("old_tensors")?);
            let (steps, period) = (given.integer("steps")?, given.integer("update_period")?);
            periodic_update(&new, &mut old, steps, period).map_err(error)?;
            Gives::Tree(old)
        }
        "per_example_global_norm_clip" => {
            let (mut sum, grads, clip) = clip_of("l2_norm_clip")?;
            let clipped = per_example_global_norm_clip(&grads, &mut sum, clip).map_err(error)?;
            Gives::Clipped(sum, clipped.into())
        }
        "per_example_layer_norm_clip" => {
            let (mut sum, grads, clip) = clip_of("global_l2_norm_clip")?;
            let uniform = given.args["uniform"] != false;
            let clipped = per_example_layer_norm_clip(&grads, &mut sum, clip, uniform).map_err(error)?;
            let clipped = grads.names().zip(clipped).map(|(name, n)| (String::from(name), Value::from(n)));
            Gives::Clipped(sum, clipped.collect::<Map<_, _>>().into())
        }
        other => return Err(Stop::Error(format!("there is no function `{other}`"))),
    })
}

/// Returns zeros for the sum over the first axis.
fn without_first_axis(grads: &DynTree) -> DynTree {
    let mut leaves = tree::leaves(grads);
    for leaf in leaves.values_mut() {
        leaf.shape = leaf.shape.split_off(1.min(leaf.shape.len()));
        leaf.data = vec![0.0; leaf.shape.iter().product()];
    }
    tree::dynamic(&leaves)
}

fn compare(tolerance: Tolerance, expected: &Value, found: DynTree) -> Result<(), Stop> {
    let expected = tree::read(expected).map_err(Stop::Error)?;
    tolerance.compare("leaf", &expected, &tree::leaves(&found), &Slack::new()).map_err(Stop::Error)
}

fn error(error: gradchain::Error) -> Stop {
    Stop::Error(error.to_string())
}

/// Checks that a config is refused at the latest where Optax refuses it.
pub(crate) fn invalid(case: &Value) -> Result<(), Stop> {
    let stages = ["build", "init", "update"];
    let stage = case["stage"].as_str().unwrap_or_default();
    let last = stages.iter().position(|s| *s == stage).ok_or_else(|| Stop::Error(format!("the stage {stage}")))?;
    let optimizer = match config::build_with::<needs::Value>(&case["config"]) {
        Ok(optimizer) => optimizer,
        Err(_) => return Ok(()),
    };
    let params = tree::dynamic(&tree::read(&case["params"]).map_err(Stop::Error)?);
    let refused = match optimizer.init(&params) {
        Err(_) => Some(1),
        Ok(mut state) => optimizer.update_with(&params, extra::value(1.0), &mut state, &params).is_err().then_some(2),
    };
    match refused {
        Some(found) if found <= last => Ok(()),
        Some(found) => Err(Stop::Error(format!("expected to be refused by {stage}, was by {}", stages[found]))),
        None => Err(Stop::Error(format!("expected to be refused by {stage}, was accepted"))),
    }
}

fn stop(error: config::ConfigError) -> Stop {
    Stop::Error(error.to_string())
}
