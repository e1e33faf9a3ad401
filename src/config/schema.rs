//! The JSON Schema of configs, derived from the builders.

use serde_json::{Map, Value, json};

use super::families::ALL;
use super::registry::Registry;

/// Returns the [JSON Schema](https://json-schema.org/draft/2020-12) of a config, as indented JSON, for editors.
///
/// Editors then complete names and mark mistakes.
///
/// It is derived from the arguments of each builder, so that no name, argument or default in it can be out of date.
/// Only [`build`](super::build) checks ranges and constraints between arguments.
///
/// ```
/// let schema: serde_json::Value = serde_json::from_str(&gradchain::config::json_schema())?;
/// let adam = &schema["$defs"]["arguments"]["adam"];
/// assert_eq!(adam["required"], serde_json::json!(["learning_rate"]));
/// assert_eq!(adam["properties"]["b2"]["default"], 0.999);
/// assert_eq!(adam["additionalProperties"], false);
/// # Ok::<(), serde_json::Error>(())
/// ```
pub fn json_schema() -> String {
    ALL.json_schema()
}

impl Registry {
    /// Returns the JSON Schema of configs of these transformations, as [`json_schema`].
    pub fn json_schema(&self) -> String {
        let names: Vec<_> = self.names().collect();
        let arguments = names.iter().map(|name| (String::from(*name), parsed(&self.schema_of(name))));
        let arguments: Map<String, Value> = arguments.collect();
        let calls: Vec<_> =
            names.iter().map(|name| call(name, json!({"$ref": format!("#/$defs/arguments/{name}")}))).collect();
        let schedules = crate::internal::recipe::schemas().into_iter().map(|(name, schema)| (name, parsed(&schema)));
        let schedules: Vec<_> = schedules.map(|(name, arguments)| call(name, arguments)).collect();
        let schema = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "gradchain optimizer",
            "$ref": "#/$defs/transformation",
            "$defs": {
                "transformation": {"oneOf": calls},
                "arguments": arguments,
                "schedule": {"oneOf": schedules},
                "scheduled": call("schedule", json!({"$ref": "#/$defs/schedule"})),
                "mask": mask(),
                "labels": labels(),
            },
        });
        format!("{schema:#}")
    }
}

fn call(name: &str, inside: Value) -> Value {
    json!({"type": "object", "properties": {name: inside}, "required": [name], "additionalProperties": false})
}

/// Parses a schema; an invalid one stays a string, which the tests find.
fn parsed(schema: &str) -> Value {
    serde_json::from_str(schema).unwrap_or_else(|_| Value::String(schema.into()))
}

fn mask() -> Value {
    let own = json!({"$ref": "#/$defs/mask"});
    let two = json!({"type": "array", "prefixItems": [own, own], "minItems": 2, "maxItems": 2});
    json!({"anyOf": [
        {"type": ["null", "boolean", "string"]},
        {"type": "object", "minProperties": 1, "maxProperties": 1, "additionalProperties": false, "properties": {
            "by_path": {"type": "object", "additionalProperties": {"type": "boolean"}},
            "path": {"type": "string"},
            "paths": {"type": "array", "items": {"type": "string"}},
            "any_paths": {"type": "array", "items": {"type": "string"}},
            "min_ndim": {"type": "integer", "minimum": 0},
            "not": own,
            "and": two,
            "or": two,
        }},
    ]})
}

fn labels() -> Value {
    let label = json!({"type": "string"});
    let pair = json!({"type": "array", "prefixItems": [label, label], "minItems": 2, "maxItems": 2});
    let by_path = json!({"type": "object", "additionalProperties": label});
    json!({"anyOf": [
        by_path,
        {"type": "object", "required": ["by_path"], "additionalProperties": false,
         "properties": {"by_path": by_path, "otherwise": label}},
        {"type": "object", "required": ["paths"], "additionalProperties": false,
         "properties": {"paths": {"type": "array", "items": pair}, "otherwise": label}},
    ]})
}
