//! JSON input of bounded depth, without duplicate keys.

use std::fmt;

use serde::de::{DeserializeOwned, DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Number, Value};

/// The maximum depth of lists and objects. Reading, comparing and building recurse; in builds without optimization, and
/// at somewhat greater depths, they fit in a thread's stack of 2 MiB.
pub const DEEPEST: usize = 256;

pub(crate) fn too_deep(value: &Value) -> Option<String> {
    let mut level = vec![value];
    for _ in 0..=DEEPEST {
        level = level.into_iter().flat_map(inside).collect();
        if level.is_empty() {
            return None;
        }
    }
    Some(refusal())
}

/// Returns the message for JSON that is nested too deeply.
pub fn refusal() -> String {
    format!("it is nested more than {DEEPEST} levels deep")
}

fn inside(value: &Value) -> Box<dyn Iterator<Item = &Value> + '_> {
    match value {
        Value::Array(items) => Box::new(items.iter()),
        Value::Object(entries) => Box::new(entries.values()),
        _ => Box::new(core::iter::empty()),
    }
}

/// Drops a value of any depth; the derived drop recurses.
#[cfg(feature = "config")]
pub fn take_apart(value: Value) {
    let mut left = vec![value];
    while let Some(value) = left.pop() {
        match value {
            Value::Array(items) => left.extend(items),
            Value::Object(entries) => left.extend(entries.into_iter().map(|(_, value)| value)),
            _ => {}
        }
    }
}

/// Parses JSON; the target type limits the depth, see [`Bounded`].
pub fn from_text<T: DeserializeOwned>(text: &str) -> serde_json::Result<T> {
    let mut reader = serde_json::Deserializer::from_str(text);
    reader.disable_recursion_limit();
    let value = T::deserialize(&mut reader)?;
    reader.end().map(|()| value)
}

/// A value of at most [`DEEPEST`] levels, without duplicate keys, which would be lost silently.
pub struct Bounded(pub Value);

impl<'de> Deserialize<'de> for Bounded {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Bounded, D::Error> {
        bounded(from).map(Bounded)
    }
}

/// Deserializes JSON of bounded depth.
pub fn bounded<'de, D: Deserializer<'de>>(from: D) -> Result<Value, D::Error> {
    Each { left: DEEPEST }.deserialize(from)
}

struct Each {
    left: usize,
}

impl Each {
    fn inside<E: Error>(&self) -> Result<Each, E> {
        let left = self.left.checked_sub(1).ok_or_else(|| E::custom(refusal()))?;
        Ok(Each { left })
    }
}

impl<'de> DeserializeSeed<'de> for Each {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Each {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }
    fn visit_bool<E>(self, b: bool) -> Result<Value, E> {
        Ok(b.into())
    }
    fn visit_i64<E>(self, n: i64) -> Result<Value, E> {
        Ok(n.into())
    }
    fn visit_u64<E>(self, n: u64) -> Result<Value, E> {
        Ok(n.into())
    }
    fn visit_f64<E>(self, x: f64) -> Result<Value, E> {
        Ok(number(x))
    }
    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        self.deserialize(from)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = items.next_element_seed(self.inside()?)? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let value = entries.next_value_seed(self.inside()?)?;
            if map.contains_key(&key) {
                return Err(A::Error::custom(format!("duplicate key `{key}`")));
            }
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

/// Converts a number; NaN and infinities to strings.
pub fn number(x: f64) -> Value {
    let special = || {
        Value::String(
            if x.is_nan() {
                "nan"
            } else if x > 0.0 {
                "inf"
            } else {
                "-inf"
            }
            .into(),
        )
    };
    Number::from_f64(x).map_or_else(special, Value::Number)
}
