//! JSON as what configs are read from.

use serde_json::Value;

use crate::recipe::json::too_deep;
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
