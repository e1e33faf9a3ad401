//! JSON as what configs are read from.

use serde_json::Value;

use crate::recipe::Recipe;

/// As it is read.
pub(super) fn recipe_of(value: &Value) -> Recipe {
    match value {
        Value::Null => Recipe::Null,
        Value::Bool(b) => Recipe::Bool(*b),
        Value::Number(n) => match n.as_i128() {
            Some(n) => Recipe::Integer(n),
            None => Recipe::Number(n.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => Recipe::text(text),
        Value::Array(items) => Recipe::List(items.iter().map(recipe_of).collect()),
        Value::Object(map) => Recipe::Map(map.iter().map(|(key, value)| (key.clone(), recipe_of(value))).collect()),
    }
}
