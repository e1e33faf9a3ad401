//! Cases of the other kinds: schedules, functions, projections, and configs that are refused.

use gradchain::prelude::*;
use gradchain::tree::tree_norm;
use gradchain::{apply_updates, config, extra, needs};
use serde_json::Value;

use super::transform::Stop;
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

pub(crate) fn function(case: &Value) -> Result<(), Stop> {
    let name = case["function"].as_str().unwrap_or_default();
    let trees = case["trees"].as_object().cloned().unwrap_or_default();
    let read = |name: &str| tree::read(trees.get(name).unwrap_or(&Value::Null)).map_err(Stop::Error);
    let tolerance = Tolerance::read(case).map_err(Stop::Error)?;
    let args = &case["args"];
    let norm = |name| -> Result<f64, Stop> { Ok(tree_norm(&tree::dynamic(&read(name)?))) };
    let found = match name {
        "apply_updates" => {
            let mut params = tree::dynamic(&read("params")?);
            let updates = tree::dynamic(&read("updates")?);
            apply_updates(&mut params, &updates).map_err(|error| Stop::Error(error.to_string()))?;
            let expected = tree::read(&case["expected"]["tree"]).map_err(Stop::Error)?;
            return tolerance
                .compare("parameter", &expected, &tree::leaves(&params), &Slack::new())
                .map_err(Stop::Error);
        }
        "global_norm" => norm("updates")?,
        "tree_norm" if args["ord"] == 2 && args["squared"] == false => norm("tree")?,
        "tree_norm" if args["ord"] == 2 => norm("tree")?.powi(2),
        other => return Err(Stop::Unsupported(other.into())),
    };
    let expected = tree::number(&case["expected"]["value"]).map_err(Stop::Error)?;
    match tolerance.agrees(expected, found) {
        true => Ok(()),
        false => Err(Stop::Error(format!("expected {expected:?}, found {found:?}"))),
    }
}

pub(crate) fn projection(case: &Value) -> Result<(), Stop> {
    Err(Stop::Unsupported(case["projection"].as_str().unwrap_or("projection").into()))
}

/// A config must be refused where Optax refuses it, or earlier.
pub(crate) fn invalid(case: &Value) -> Result<(), Stop> {
    let stages = ["build", "init", "update"];
    let stage = case["stage"].as_str().unwrap_or_default();
    let last = stages.iter().position(|s| *s == stage).ok_or_else(|| Stop::Error(format!("the stage {stage}")))?;
    let optimizer = match config::build_with::<needs::Value>(&case["config"]) {
        Ok(optimizer) => optimizer,
        Err(error) if error.unsupported_name().is_some() => return Err(stop(error)),
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
    match error.unsupported_name() {
        Some(name) => Stop::Unsupported(name.into()),
        None => Stop::Error(error.to_string()),
    }
}
