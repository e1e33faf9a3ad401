//! Building from a config.

use serde::Serialize;

use super::families::{ALL, noise};
use super::registry::PER_EXAMPLE;
use super::serialized::recipe_of;
use crate::needs::{Needs, Nothing};
use crate::recipe::{ConfigError, Node, Result};
use crate::schedule::Schedule;
use crate::transform::PerExample;
use crate::wrapper::{Boxed, narrow};

/// Builds a transformation from any serializable value.
///
/// Examples are `serde_json::json!({..})`, a TOML value, or your own struct.
///
/// # Errors
///
/// Fails if a name is not known, a value has the wrong form, or an argument is out of its range. `init` reports errors
/// that depend on the parameters, such as a mask that does not fit them.
pub fn build(config: &(impl Serialize + ?Sized)) -> Result<Boxed> {
    build_with::<Nothing>(config)
}

/// Builds a transformation whose steps take more than gradients; see [`needs`](crate::needs).
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::{config, extra, needs};
///
/// let config = serde_json::json!({"polyak_sgd": {}});
/// let optimizer = config::build_with::<needs::Value>(&config)?;
/// let mut params = 2.0_f64;
/// let mut state = optimizer.init(&params)?;
/// optimizer.step_with(&mut params, &2.0, extra::value(2.0), &mut state)?;
/// assert_eq!(params, 1.0);
///
/// let error = config::build(&config).unwrap_err();
/// assert!(error.to_string().contains("needs the value of the loss"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// As [`build`]; also if the transformation needs more than `N`.
pub fn build_with<N: Needs>(config: &(impl Serialize + ?Sized)) -> Result<Boxed<N>> {
    ALL.build_with(config)
}

/// Builds a transformation of per-example gradients: `dpsgd`, `differentially_private_aggregate`, or a chain on one.
///
/// ```
/// use gradchain::config;
/// use gradchain::needs::Nothing;
///
/// let config = serde_json::json!({"chain": [
///     {"differentially_private_aggregate": {"l2_norm_clip": 1.0, "noise_multiplier": 0.0, "key": 42}},
///     {"sgd": {"learning_rate": 0.5}},
/// ]});
/// let optimizer = config::build_per_example::<Nothing>(&config)?;
/// let mut params = vec![0.0_f64, 0.0];
/// let mut state = optimizer.init(&params)?;
/// optimizer.step_per_example(&mut params, &ndarray::array![[2.0, 0.0], [0.0, 0.5]], &mut state)?;
/// assert_eq!(params, [-0.25, -0.125]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// As [`build_with`].
pub fn build_per_example<N: Needs>(config: &(impl Serialize + ?Sized)) -> Result<PerExample<Boxed<N>>> {
    let recipe = recipe_of(config)?;
    let node = Node::root(&recipe, &*ALL);
    noise::per_example::read(&ALL, &node)?.try_map(narrow).map_err(|error| ConfigError::refused(node.place(), error))
}

/// Returns whether a config is one for [`build_per_example`].
pub fn is_per_example(config: &(impl Serialize + ?Sized)) -> bool {
    let Ok(recipe) = recipe_of(config) else { return false };
    let mut firsts = core::iter::successors(Some(&recipe), |config| config.get("chain")?.items().first());
    firsts.any(|config| PER_EXAMPLE.iter().any(|name| config.get(name).is_some()))
}

/// Builds a schedule, such as `{"linear": {"init_value": 1.0, "end_value": 0.0, "transition_steps": 10}}`.
///
/// # Errors
///
/// As [`build`].
///
/// ```
/// let line = serde_json::json!({"linear": {"init_value": 1.0, "end_value": 0.0, "transition_steps": 10}});
/// assert_eq!(gradchain::config::schedule(&line)?.at(5), 0.5);
/// # Ok::<(), gradchain::config::ConfigError>(())
/// ```
pub fn schedule(config: &(impl Serialize + ?Sized)) -> Result<Schedule> {
    Node::root(&recipe_of(config)?, &*ALL).read()
}

/// Returns the names of the transformations that can be built, in order.
pub fn transformations() -> Vec<&'static str> {
    ALL.names().collect()
}
