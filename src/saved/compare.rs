//! What differs between an optimizer as data and another.

use serde_json::Value;

use crate::recipe::Recipe;

/// A recipe as JSON; numbers that JSON has not, and functions, are texts.
pub(crate) fn as_json(recipe: &Recipe) -> Value {
    match recipe {
        Recipe::Null => Value::Null,
        Recipe::Bool(b) => Value::Bool(*b),
        Recipe::Integer(n) => serde_json::Number::from_i128(*n).map_or_else(|| n.to_string().into(), Value::Number),
        Recipe::Number(x) => serde_json::Number::from_f64(*x).map_or_else(|| x.to_string().into(), Value::Number),
        Recipe::Text(text) => text.as_str().into(),
        Recipe::Opaque(text) => format!("<{text}>").into(),
        Recipe::List(items) => items.iter().map(as_json).collect(),
        Recipe::Map(entries) => entries.iter().map(|(key, value)| (key.clone(), as_json(value))).collect(),
    }
}

/// Shows the place and the values of every difference.
pub(crate) fn differences(expected: &Value, found: &Value, show: &mut dyn FnMut(&str, &str)) {
    at("$", expected, found, show);
}

fn at(place: &str, expected: &Value, found: &Value, show: &mut dyn FnMut(&str, &str)) {
    match (expected, found) {
        (Value::Array(ours), Value::Array(theirs)) if ours.len() == theirs.len() => {
            for (i, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
                at(&format!("{place}[{i}]"), ours, theirs, show);
            }
        }
        (Value::Object(ours), Value::Object(theirs)) if ours.keys().eq(theirs.keys()) => {
            for ((key, ours), (_, theirs)) in ours.iter().zip(theirs) {
                at(&format!("{place}.{key}"), ours, theirs, show);
            }
        }
        (Value::Object(ours), Value::Object(theirs)) => match (name(ours), name(theirs)) {
            (Some(ours), Some(theirs)) if ours != theirs => show(place, &format!("expected {ours}, found {theirs}")),
            _ => {
                for key in ours.keys().chain(theirs.keys().filter(|key| !ours.contains_key(*key))) {
                    let (ours, theirs) = (ours.get(key), theirs.get(key));
                    let place = format!("{place}.{key}");
                    match (ours, theirs) {
                        (Some(ours), Some(theirs)) => at(&place, ours, theirs, show),
                        (ours, theirs) => {
                            show(&place, &format!("expected {}, found {}", or_nothing(ours), or_nothing(theirs)))
                        }
                    }
                }
            }
        },
        (Value::Array(ours), Value::Array(theirs)) => {
            show(place, &format!("expected {} members, {expected}, found {}, {found}", ours.len(), theirs.len()));
        }
        _ if expected == found => {}
        _ => show(place, &format!("expected {expected}, found {found}")),
    }
}

/// The name of a call: what it is of, without its arguments.
fn name(entries: &serde_json::Map<String, Value>) -> Option<&str> {
    let mut keys = entries.keys();
    keys.next().filter(|_| keys.next().is_none()).map(String::as_str)
}

fn or_nothing(value: Option<&Value>) -> String {
    value.map_or_else(|| "nothing".into(), Value::to_string)
}

/// Shows every place of an optimizer as data.
pub(crate) fn places(place: &str, value: &Value, show: &mut dyn FnMut(&str)) {
    show(place);
    match value {
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(i, item)| places(&format!("{place}[{i}]"), item, show));
        }
        Value::Object(entries) => entries.iter().for_each(|(key, item)| places(&format!("{place}.{key}"), item, show)),
        _ => {}
    }
}

/// Whether a place is one that may differ: an argument of that name, what is below one, or the place itself.
pub(crate) fn is_at(place: &str, allowed: &str) -> bool {
    place == allowed
        || place.strip_prefix(allowed).is_some_and(|rest| allowed.starts_with('$') && rest.starts_with(['.', '[']))
        || place.split('.').any(|part| part.split('[').next() == Some(allowed))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_difference_has_its_place() {
        let ours = json!({"chain": [{"clip": {"max_delta": 1.0}}, {"adam": {"b1": 0.9, "mask": null}}, {"x": {}}]});
        let theirs =
            json!({"chain": [{"clip": {"max_delta": 1.0}}, {"adam": {"b1": 0.95, "nesterov": true}}, {"y": {}}]});
        let mut lines = Vec::new();
        differences(&ours, &theirs, &mut |place, what| lines.push(format!("{place}: {what}")));
        assert_eq!(
            lines,
            [
                "$.chain[1].adam.b1: expected 0.9, found 0.95",
                "$.chain[1].adam.mask: expected null, found nothing",
                "$.chain[1].adam.nesterov: expected nothing, found true",
                "$.chain[2]: expected x, found y",
            ]
        );
    }

    #[test]
    fn an_argument_is_allowed_by_name_or_by_place() {
        let place = "$.chain[1].adam.learning_rate.schedule";
        for allowed in ["learning_rate", "$.chain[1].adam.learning_rate", "$.chain[1]", "adam", place] {
            assert!(is_at(place, allowed), "{allowed}");
        }
        for other in ["learning", "rate", "$.chain[1].adam.learning", "b1", "$.chain[10]", ""] {
            assert!(!is_at(place, other), "{other}");
        }
    }
}
