//! JSON as what configs are read from.

use serde_json::Value;

use crate::recipe::json::{Bounded, from_text, number, too_deep};
use crate::recipe::{ConfigError, Recipe, Result};

/// As it is read.
///
/// # Errors
///
/// If it is nested too deeply.
pub(super) fn recipe_of(value: &Value) -> Result<Recipe> {
    match too_deep(value) {
        Some(problem) => Err(ConfigError::wrong("$", "a config", format_args!("one that cannot be read: {problem}"))),
        None => Ok(read(value)),
    }
}

fn read(value: &Value) -> Recipe {
    match value {
        Value::Null => Recipe::Null,
        Value::Bool(b) => Recipe::Bool(*b),
        Value::Number(n) => match n.as_i128() {
            Some(n) => Recipe::Integer(n),
            None => Recipe::Number(n.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => Recipe::text(text),
        Value::Array(items) => Recipe::List(items.iter().map(read).collect()),
        Value::Object(map) => Recipe::Map(map.iter().map(|(key, value)| (key.clone(), read(value))).collect()),
    }
}

/// The value that is written in JSON.
pub(super) fn json_in(text: &str) -> Result<Value> {
    from_text(text).map(|Bounded(value)| value).map_err(|error| ConfigError::wrong("$", "JSON", error))
}

/// The value that is written in TOML.
pub(super) fn toml_in(text: &str) -> Result<Value> {
    let table: toml::Table = toml::from_str(text).map_err(|error| ConfigError::wrong("$", "TOML", error))?;
    Ok(json_of(toml::Value::Table(table)))
}

fn json_of(value: toml::Value) -> Value {
    match value {
        toml::Value::String(text) => Value::String(text),
        toml::Value::Integer(n) => Value::Number(n.into()),
        toml::Value::Float(x) => number(x),
        toml::Value::Boolean(b) => Value::Bool(b),
        toml::Value::Datetime(at) => Value::String(at.to_string()),
        toml::Value::Array(items) => Value::Array(items.into_iter().map(json_of).collect()),
        toml::Value::Table(table) => {
            Value::Object(table.into_iter().map(|(key, value)| (key, json_of(value))).collect())
        }
    }
}
