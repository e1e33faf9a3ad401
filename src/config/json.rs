//! Parsers for JSON and TOML.

use serde_json::Value;

use crate::internal::recipe::{Bounded, from_text, number};
use crate::recipe::{ConfigError, Result};

pub(super) fn json_in(text: &str) -> Result<Value> {
    from_text(text).map(|Bounded(value)| value).map_err(|error| ConfigError::wrong("$", "JSON", error))
}

pub(super) fn toml_in(text: &str) -> Result<Value> {
    // No TOML document begins with a brace.
    let expected = if text.trim_start().starts_with('{') { "TOML (`Config::from_json` reads JSON)" } else { "TOML" };
    let table: toml::Table = toml::from_str(text).map_err(|error| ConfigError::wrong("$", expected, error))?;
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
