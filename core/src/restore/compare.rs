use serde_json::Value;

use crate::recipe::Recipe;

/// Converts a recipe to JSON; functions, and numbers that JSON lacks, as strings.
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

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Of {
    /// Added, removed, renamed or wrapped parts: the subject of verbs.
    Parts,
    /// Arguments, and parts in place of others.
    Arguments,
}

/// Receives a difference: place, category, values.
pub(crate) type Show<'a> = dyn FnMut(&str, Of, &str) + 'a;

pub(crate) fn differences(expected: &Value, found: &Value, show: &mut Show<'_>) {
    at("$", expected, found, show);
}

fn at(place: &str, expected: &Value, found: &Value, show: &mut Show<'_>) {
    if let (Some((ours, own)), Some((theirs, others))) = (member(expected), member(found)) {
        if ours != theirs {
            show(&format!("{place}[0]"), Of::Parts, &format!("expected {ours:?}, found {theirs:?}"));
        }
        return at(&format!("{place}[1]"), own, others, show);
    }
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
        (Value::Object(own), Value::Object(others)) => match (name(own), name(others)) {
            (Some(ours), Some(theirs)) if ours != theirs => {
                // A wrapped or unwrapped part may differ inside too; so may a partition's groups.
                let (inside, outside) = (calls(place, expected, theirs), calls(place, found, ours));
                let chains = [ours, theirs].iter().all(|name| ["chain", "named_chain"].contains(name));
                let is_one = |all: &[_], around| all.len() == 1 || (!all.is_empty() && around == "partition");
                let (is_inside, is_outside) = (is_one(&inside, ours), is_one(&outside, theirs));
                let is_said = is_of_part(place) && (chains || is_inside || is_outside);
                let of = if is_said { Of::Parts } else { Of::Arguments };
                show(place, of, &format!("expected {ours}, found {theirs}"));
                if is_inside {
                    inside.iter().for_each(|(inside, ours)| at(inside, ours, found, show));
                } else if is_outside {
                    outside.iter().for_each(|(_, theirs)| at(place, expected, theirs, show));
                }
            }
            _ => {
                for key in own.keys().chain(others.keys().filter(|key| !own.contains_key(*key))) {
                    let (ours, theirs) = (own.get(key), others.get(key));
                    let place = format!("{place}.{key}");
                    match (ours, theirs) {
                        (Some(ours), Some(theirs)) => at(&place, ours, theirs, show),
                        // An optional argument of a later version, not given.
                        (Some(Value::Null), None) | (None, Some(Value::Null)) => {}
                        (ours, theirs) => {
                            let what = format!("expected {}, found {}", or_nothing(ours), or_nothing(theirs));
                            show(&place, Of::Arguments, &what);
                        }
                    }
                }
            }
        },
        (Value::Array(ours), Value::Array(theirs)) => match [ours, theirs].map(|all| names(all)) {
            [Some(own), Some(others)] if is_of_part(place) => {
                let both = in_both(&own, &others);
                let new = (0..own.len()).filter(|i| both.iter().all(|(ours, _)| ours != i));
                let gone = (0..others.len()).filter(|i| both.iter().all(|(_, theirs)| theirs != i));
                let changes = new.map(|i| format!("[{i}] {} is new", own[i]));
                let changes = changes.chain(gone.map(|i| format!("[{i}] {} is gone", others[i]))).collect::<Vec<_>>();
                let (expected, found) = (own.len(), others.len());
                let of = if both.len() == expected.min(found) { Of::Parts } else { Of::Arguments };
                show(place, of, &format!("expected {expected} members, found {found}: {}", changes.join(", ")));
                for (own, other) in both {
                    at(&format!("{place}[{own}]"), &ours[own], &theirs[other], show);
                }
            }
            _ => show(place, Of::Arguments, &format!("expected {expected}, found {found}")),
        },
        _ if expected == found => {}
        _ => show(place, Of::Arguments, &format!("expected {expected}, found {found}")),
    }
}

/// Returns whether a place has transformations, not masks or schedules.
fn is_of_part(place: &str) -> bool {
    let mut levels = place.rsplit('.');
    let last = levels.next().and_then(|last| last.split('[').next());
    last.is_some_and(|last| ["$", "chain", "named_chain", "inner"].contains(&last))
        || levels.next() == Some("transforms")
}

fn name(entries: &serde_json::Map<String, Value>) -> Option<&str> {
    let mut keys = entries.keys();
    keys.next().filter(|_| keys.next().is_none()).map(String::as_str)
}

/// Returns the calls of this name inside another, with places.
fn calls<'a>(place: &str, value: &'a Value, display_name: &str) -> Vec<(String, &'a Value)> {
    match value {
        Value::Array(items) => {
            let inside = items.iter().enumerate();
            inside.flat_map(|(i, item)| calls(&format!("{place}[{i}]"), item, display_name)).collect()
        }
        Value::Object(entries) if name(entries) == Some(display_name) => vec![(place.to_owned(), value)],
        Value::Object(entries) => {
            entries.iter().flat_map(|(key, item)| calls(&format!("{place}.{key}"), item, display_name)).collect()
        }
        _ => Vec::new(),
    }
}

fn member(value: &Value) -> Option<(&str, &Value)> {
    match &value.as_array()?[..] {
        [Value::String(display_name), call @ Value::Object(entries)] if name(entries).is_some() => {
            Some((display_name, call))
        }
        _ => None,
    }
}

fn names(members: &[Value]) -> Option<Vec<&str>> {
    let display_name = |value| member(value).map(|(display_name, _)| display_name);
    members.iter().map(|value| display_name(value).or_else(|| value.as_object().and_then(name))).collect()
}

/// Returns a longest common subsequence of members, by name.
fn in_both(ours: &[&str], theirs: &[&str]) -> Vec<(usize, usize)> {
    let is_same = |i: usize, j: usize| ours[i] == theirs[j];
    // The longest length from two places on.
    let mut most = vec![vec![0; theirs.len() + 1]; ours.len() + 1];
    for i in (0..ours.len()).rev() {
        for j in (0..theirs.len()).rev() {
            most[i][j] =
                if is_same(i, j) { 1 + most[i + 1][j + 1] } else { usize::max(most[i + 1][j], most[i][j + 1]) };
        }
    }
    let (mut i, mut j, mut found) = (0, 0, Vec::new());
    while i < ours.len() && j < theirs.len() {
        match is_same(i, j) {
            true => {
                found.push((i, j));
                (i, j) = (i + 1, j + 1);
            }
            false if most[i + 1][j] >= most[i][j + 1] => i += 1,
            false => j += 1,
        }
    }
    found
}

fn or_nothing(value: Option<&Value>) -> String {
    value.map_or_else(|| "nothing".into(), Value::to_string)
}

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

/// Returns whether a place may differ: an argument of that name, or the place, or anything below.
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
        let ours = json!({"chain": [{"clip": {"max_delta": 1.0}}, {"adam": {"b1": 0.9, "mask": "w"}}, {"x": {}}]});
        let theirs =
            json!({"chain": [{"clip": {"max_delta": 1.0}}, {"adam": {"b1": 0.95, "nesterov": true}}, {"y": {}}]});
        let mut lines = Vec::new();
        differences(&ours, &theirs, &mut |place, _, what| lines.push(format!("{place}: {what}")));
        assert_eq!(
            lines,
            [
                "$.chain[1].adam.b1: expected 0.9, found 0.95",
                "$.chain[1].adam.mask: expected \"w\", found nothing",
                "$.chain[1].adam.nesterov: expected nothing, found true",
                "$.chain[2]: expected x, found y",
            ]
        );
    }

    #[test]
    fn an_optional_argument_may_be_left_out() {
        let (none, nothing) = (json!({"adam": {"b1": 0.9, "momentum_decay": null}}), json!({"adam": {"b1": 0.9}}));
        for (ours, theirs) in [(&none, &nothing), (&nothing, &none)] {
            differences(ours, theirs, &mut |place, _, what| panic!("{place}: {what}"));
        }
    }

    #[test]
    fn members_that_stay_are_compared_where_others_came_and_went() {
        let ours = json!({"chain": [{"zero": {}}, {"clip": {"max": 1}}, {"adam": {"b1": 0.9, "rate": 0.1}}]});
        let theirs = json!({"chain": [{"clip": {"max": 2}}, {"adam": {"b1": 0.9, "rate": 0.2}}]});
        let places = |ours: &serde_json::Value, theirs: &serde_json::Value| {
            let mut places = Vec::new();
            differences(ours, theirs, &mut |place, _, _| places.push(place.to_owned()));
            places
        };
        assert_eq!(places(&ours, &theirs), ["$.chain", "$.chain[1].clip.max", "$.chain[2].adam.rate"]);
        assert_eq!(places(&theirs, &ours), ["$.chain", "$.chain[0].clip.max", "$.chain[1].adam.rate"]);
        let (adam, wrapped) =
            (json!({"adam": {"rate": 1}}), json!({"multi": {"k": 2, "inner": {"adam": {"rate": 2}}}}));
        assert_eq!(places(&wrapped, &adam), ["$", "$.multi.inner.adam.rate"]);
        assert_eq!(places(&adam, &wrapped), ["$", "$.adam.rate"]);
        // Verbs do not explain masks and replaced rules.
        let of = |ours: &serde_json::Value, theirs: &serde_json::Value| {
            let mut of = Vec::new();
            differences(ours, theirs, &mut |_, part, _| of.push(part == Of::Parts));
            of
        };
        assert_eq!(of(&json!({"chain": [{"zero": {}}, adam]}), &json!({"chain": [adam]})), [true]);
        assert_eq!(of(&json!({"chain": [{"zero": {}}, {"sgd": {}}]}), &json!({"chain": [adam]})), [false]);
        assert_eq!(of(&json!({"chain": [{"sgd": {}}]}), &json!({"chain": [adam]})), [false]);
        assert_eq!(of(&json!({"named_chain": [["a", adam]]}), &json!({"named_chain": [["b", adam]]})), [true]);
        let masked = |mask| json!({"adam": {"mask": mask}});
        assert_eq!(of(&masked(json!({"path": "w"})), &masked(json!({"not": {"path": "w"}}))), [false]);
        assert_eq!(of(&masked(json!({"and": [{"path": "w"}]})), &masked(json!({"and": []}))), [false]);
        // Two candidates are ambiguous.
        assert_eq!(places(&json!({"chain": [adam, adam]}), &json!({"adam": {"rate": 2}})), ["$"]);
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
