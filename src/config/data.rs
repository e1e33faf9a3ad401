//! Configs as values: conversions to and from JSON, TOML and other formats of serde, and from transformations.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Number, Value};

use super::families::ALL;
use super::json::{json_in, toml_in};
use super::serialized::recipe_of;
use crate::GradientTransformation;
use crate::internal::recipe::{Bounded, number, take_apart};
use crate::needs::{Needs, Nothing};
use crate::recipe::{ConfigError, Node, Recipe, Result};
use crate::wrapper::Boxed;

/// A whole optimizer as data, well-formed since it has been built once.
///
/// # Example
///
/// ```
/// use gradchain::config::Config;
/// use gradchain::prelude::*;
///
/// let config = Config::from_toml(r#"
///     [[chain]]
///     clip_by_global_norm = { max_norm = 1.0 }
///
///     [[chain]]
///     adamw = { weight_decay = 0.1, mask = { min_ndim = 2 }, learning_rate = { schedule = {
///         warmup_cosine_decay = { init_value = 0.0, peak_value = 3e-4, warmup_steps = 100, decay_steps = 1000 } } } }
/// "#)?;
/// let optimizer = config.build()?;
/// assert_eq!(Config::of(&optimizer)?, Config::of(&Config::from_json(&config.to_json())?.build()?)?);
///
/// let error = Config::from_toml("[adam]\nlearning_rate = 0.1\nlearning_rte = 0.1").unwrap_err();
/// assert!(error.to_string().contains("did you mean `learning_rate`?"), "{error}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq)]
pub struct Config(Value);

impl Config {
    /// Checks any serializable value by building it: `serde_json::json!({..})`, your own struct.
    ///
    /// # Errors
    ///
    /// As [`build`](super::build()), for a transformation with any needs.
    pub fn new(config: &(impl Serialize + ?Sized)) -> Result<Config> {
        let recipe = recipe_of(config)?;
        ALL.read(&Node::root(&recipe, &*ALL)).map(|_| Config(value_of(&recipe)))
    }

    fn checked(value: Value) -> Result<Config> {
        match recipe_of(&value) {
            Ok(recipe) => ALL.read(&Node::root(&recipe, &*ALL)).map(|_| Config(value)),
            Err(error) => {
                take_apart(value);
                Err(error)
            }
        }
    }

    /// Returns the config of a built transformation, with every argument, which builds the same transformation.
    ///
    /// # Errors
    ///
    /// Fails if some part is not data: a mask or a schedule that is a function, a custom rule. All such parts are
    /// listed.
    ///
    /// ```
    /// use gradchain::config::Config;
    /// use gradchain::prelude::*;
    ///
    /// let config = Config::of(&chain((clip(1.0), sgd(0.5))))?;
    /// assert_eq!(config.to_string(), r#"{"chain":[{"clip":{"max_delta":1.0}},{"sgd":{"learning_rate":0.5}}]}"#);
    ///
    /// let error = Config::of(&masked(sgd(0.1), Mask::by(|leaf| leaf.ndim() > 1))).unwrap_err();
    /// assert_eq!(error.to_string(), "$.masked.mask: expected data, found Mask::by(..)");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn of<T: GradientTransformation>(transformation: &T) -> Result<Config> {
        let recipe = transformation.recipe();
        let mut opaque = Vec::new();
        recipe.visit_opaque(&mut |place, what| opaque.push((String::from(place), String::from(what))));
        match opaque.split_first() {
            None => Config::checked(value_of(&recipe)),
            Some(((place, what), others)) => {
                let others: String = others.iter().map(|(place, what)| format!("; at {place} {what}")).collect();
                Err(ConfigError::wrong(place, "data", what.clone() + &others))
            }
        }
    }

    /// Reads JSON that names transformations of the crate.
    ///
    /// [`Registry::build_json`](super::Registry::build_json) reads yours too.
    ///
    /// # Errors
    ///
    /// Fails if it is not JSON, or an object has a key twice; or as [`new`](Config::new).
    pub fn from_json(text: &str) -> Result<Config> {
        json_in(text).and_then(Config::checked)
    }

    /// Reads TOML that names transformations of the crate. TOML has no `null`: write `"none"`.
    ///
    /// [`Registry::build_toml`](super::Registry::build_toml) reads yours too.
    ///
    /// # Errors
    ///
    /// Fails if it is not TOML; or as [`new`](Config::new).
    pub fn from_toml(text: &str) -> Result<Config> {
        toml_in(text).and_then(Config::checked)
    }

    /// Returns indented JSON.
    pub fn to_json(&self) -> String {
        format!("{:#}", self.0)
    }

    /// Returns TOML. Integers beyond TOML's, which end at `i64::MAX`, are strings.
    ///
    /// Reading TOML ends at 80 levels of tables and lists, so that a deeper config can be written but not read; JSON
    /// has no such limit.
    ///
    /// ```
    /// use gradchain::config::Config;
    /// use gradchain::prelude::*;
    ///
    /// let config = Config::of(&lion(1e-4).weight_decay(0.1))?;
    /// assert_eq!(Config::from_toml(&config.to_toml())?.to_toml(), config.to_toml());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn to_toml(&self) -> String {
        match toml_of(&self.0) {
            toml::Value::Table(table) => table.to_string(),
            other => other.to_string(),
        }
    }

    /// Builds the transformation.
    ///
    /// # Errors
    ///
    /// Fails if it needs more than gradients; see [`build_with`](Config::build_with).
    pub fn build(&self) -> Result<Boxed> {
        self.build_with::<Nothing>()
    }

    /// Builds the transformation, for steps that take more than gradients.
    ///
    /// # Errors
    ///
    /// Fails if it needs more than `N`.
    pub fn build_with<N: Needs>(&self) -> Result<Boxed<N>> {
        ALL.build_with(&self.0)
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Config({})", self.0)
    }
}

/// Writes one line of JSON.
impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for Config {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Config {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Config::checked(Bounded::deserialize(deserializer)?.0).map_err(serde::de::Error::custom)
    }
}

/// Converts to JSON; NaN, infinities and opaque values become strings.
fn value_of(recipe: &Recipe) -> Value {
    match recipe {
        Recipe::Null => Value::Null,
        Recipe::Bool(b) => Value::Bool(*b),
        Recipe::Integer(n) => Number::from_i128(*n).map_or_else(|| Value::String(n.to_string()), Value::Number),
        Recipe::Number(x) => number(*x),
        Recipe::Text(text) | Recipe::Opaque(text) => Value::String(text.clone()),
        Recipe::List(items) => Value::Array(items.iter().map(value_of).collect()),
        Recipe::Map(entries) => {
            Value::Object(entries.iter().map(|(key, value)| (key.clone(), value_of(value))).collect::<Map<_, _>>())
        }
        _ => Value::String(recipe.to_string()),
    }
}

fn toml_of(value: &Value) -> toml::Value {
    match value {
        Value::Null => toml::Value::String("none".into()),
        Value::Bool(b) => toml::Value::Boolean(*b),
        Value::Number(n) => match (n.as_i64(), n.as_f64()) {
            (Some(n), _) => toml::Value::Integer(n),
            (None, Some(x)) if n.is_f64() => toml::Value::Float(x),
            // Beyond TOML's integers: a seed can be read from a string too.
            _ => toml::Value::String(n.to_string()),
        },
        Value::String(text) => toml::Value::String(text.clone()),
        Value::Array(items) => toml::Value::Array(items.iter().map(toml_of).collect()),
        Value::Object(map) => {
            toml::Value::Table(map.iter().map(|(key, value)| (key.clone(), toml_of(value))).collect())
        }
    }
}
