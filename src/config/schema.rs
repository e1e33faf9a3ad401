//! The JSON schema of configs, from what the builders ask for.

use serde_json::{Map, Value, json};

use super::build::transformations;
use super::node::Asked;
use super::registry::ALL;
use super::schedules;

/// The [JSON Schema](https://json-schema.org/draft/2020-12) of a config: for editors that complete names and mark mistakes
/// while a config is written.
///
/// It is worked out from what each builder asks for, so that no name, argument or default in it can be out of date. What
/// depends on the value of another argument, and ranges, are checked by [`build`](super::build) only.
///
/// ```
/// let schema = gradchain::config::json_schema();
/// let adam = &schema["$defs"]["arguments"]["adam"];
/// assert_eq!(adam["required"], serde_json::json!(["learning_rate"]));
/// assert_eq!(adam["properties"]["b2"]["default"], 0.999);
/// assert_eq!(adam["additionalProperties"], false);
/// ```
pub fn json_schema() -> Value {
    let names: Vec<_> = transformations();
    let arguments: Map<String, Value> = names.iter().map(|name| (name.to_string(), of_transformation(name))).collect();
    let call = |name: &str, inside: Value| json!({"type": "object", "properties": {name: inside}, "required": [name], "additionalProperties": false});
    let calls: Vec<_> =
        names.iter().map(|name| call(name, json!({"$ref": format!("#/$defs/arguments/{name}")}))).collect();
    let of_schedule = |name: &&str| call(name, object(schedules::asked(name, ALL)));
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "gradchain optimizer",
        "$ref": "#/$defs/transformation",
        "$defs": {
            "transformation": {"oneOf": calls},
            "arguments": arguments,
            "schedule": {"oneOf": schedules::NAMES.iter().map(of_schedule).collect::<Vec<_>>()},
            "scheduled": call("schedule", json!({"$ref": "#/$defs/schedule"})),
            "warmup_cosine_decay": object(schedules::asked("warmup_cosine_decay", ALL)),
            "mask": mask(),
            "labels": labels(),
        },
    })
}

fn of_transformation(name: &str) -> Value {
    let member = json!({"$ref": "#/$defs/transformation"});
    match name {
        "chain" => json!({"type": "array", "items": member}),
        "named_chain" => {
            let pair =
                json!({"type": "array", "prefixItems": [{"type": "string"}, member], "minItems": 2, "maxItems": 2});
            json!({"type": "array", "items": pair})
        }
        "inject_hyperparams" => json!({
            "type": "object",
            "properties": {
                "inner": member,
                "static_args": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
                "hyperparam_dtype": {"enum": [null, "none", "f16", "bf16", "f32", "f64"]},
            },
            "required": ["inner"],
            "additionalProperties": false,
        }),
        "partition" => json!({
            "type": "object",
            "properties": {
                "transforms": {"type": "object", "additionalProperties": member},
                "labels": {"$ref": "#/$defs/labels"},
            },
            "required": ["transforms", "labels"],
            "additionalProperties": false,
        }),
        _ => object(ALL.asked(name)),
    }
}

/// An object of named arguments.
fn object(asked: Vec<Asked>) -> Value {
    let required: Vec<_> = asked.iter().filter(|a| a.required).map(|a| a.name).collect();
    let properties: Map<String, Value> = asked.into_iter().map(|a| (a.name.into(), a.schema)).collect();
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

fn mask() -> Value {
    let own = json!({"$ref": "#/$defs/mask"});
    let two = json!({"type": "array", "prefixItems": [own, own], "minItems": 2, "maxItems": 2});
    json!({"anyOf": [
        {"enum": [null, true, false, "none"]},
        {"type": "object", "minProperties": 1, "maxProperties": 1, "additionalProperties": false, "properties": {
            "by_path": {"type": "object", "additionalProperties": {"type": "boolean"}},
            "path": {"type": "string"},
            "paths": {"type": "array", "items": {"type": "string"}},
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
