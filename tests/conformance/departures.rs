//! Intended differences from Optax.
//!
//! `departures.toml` has the rules: their cases, and the expected values.

mod gives;
mod situation;

use serde::Deserialize;
use serde_json::Value;

pub(crate) use gives::Gives;
use situation::Situation;

use super::transform::{Seen, Transform};
use super::tree::Leaf;
use super::{Verdict, projection};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Departures {
    transform: Vec<Rule<When, Gives>>,
    pub(crate) projection: Vec<Rule<projection::When, projection::Gives>>,
}

/// A rule: cases, expected values, reason.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rule<When, Gives> {
    pub(crate) name: String,
    reason: String,
    pub(crate) when: When,
    pub(crate) gives: Gives,
}

/// Conditions, all required.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct When {
    /// Names in the config, all required.
    uses: Vec<String>,
    /// Names in the config, one required.
    uses_any: Vec<String>,
    /// One required of some parameter.
    parameters: Vec<String>,
    situation: Option<Situation>,
}

impl Departures {
    pub(crate) fn kept() -> Departures {
        toml::from_str(include_str!("departures.toml")).expect("departures.toml is well formed")
    }

    pub(crate) fn rules(&self) -> impl Iterator<Item = (&str, &str)> {
        let transform = self.transform.iter().map(|rule| (&*rule.name, &*rule.reason));
        transform.chain(self.projection.iter().map(|rule| (&*rule.name, &*rule.reason)))
    }

    /// Judges values that differ from Optax's, by as few rules as possible.
    pub(crate) fn judge(&self, case: &Transform, found: &[Seen], difference: String) -> Verdict {
        let matching: Vec<_> = self.transform.iter().filter(|rule| rule.when.holds(case, found)).collect();
        let mut sets: Vec<u32> = (1..1 << matching.len()).collect();
        sets.sort_by_key(|set| set.count_ones());
        let mut last = String::new();
        for set in sets {
            let chosen: Vec<_> = (0..matching.len()).filter(|i| set & (1 << i) != 0).map(|i| matching[i]).collect();
            let mut expected = case.expected();
            chosen.iter().for_each(|rule| rule.gives.put(case, found, &mut expected));
            match case.compare(&expected, found) {
                Ok(()) => return Verdict::Departed(chosen.iter().map(|rule| rule.name.clone()).collect()),
                Err(difference) => last = difference,
            }
        }
        let names: Vec<_> = matching.iter().map(|rule| &*rule.name).collect();
        let also = if names.is_empty() { String::new() } else { format!("; with {}: {last}", names.join(", ")) };
        Verdict::Failed(difference + &also)
    }
}

impl When {
    fn holds(&self, case: &Transform, found: &[Seen]) -> bool {
        let types = |leaf: &Leaf| self.parameters.iter().any(|name| leaf.dtype.name() == name);
        self.uses.iter().all(|name| uses(&case.config, name))
            && (self.uses_any.is_empty() || self.uses_any.iter().any(|name| uses(&case.config, name)))
            && (self.parameters.is_empty() || case.params.values().any(types))
            && self.situation.is_none_or(|situation| situation.holds(case, found))
    }
}

fn uses(config: &Value, name: &str) -> bool {
    match config {
        Value::Object(map) => map.iter().any(|(key, value)| key == name && !value.is_null() || uses(value, name)),
        Value::Array(values) => values.iter().any(|value| uses(value, name)),
        Value::String(value) => value == name,
        _ => false,
    }
}
