//! Reading of serializable values as configs.

use core::fmt;

use serde::ser::{self, Serialize, Serializer};

use crate::internal::recipe::{DEEPEST, refusal};
use crate::recipe::{ConfigError, Recipe, Result};

/// Reads a config that is data, without duplicate keys, and not nested too deeply.
pub(super) fn recipe_of<C: Serialize + ?Sized>(config: &C) -> Result<Recipe> {
    config
        .serialize(Reader { left: DEEPEST })
        .map_err(|Problem(problem)| ConfigError::wrong("$", "a config", format_args!("invalid data: {problem}")))
}

#[derive(Debug)]
struct Problem(String);

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for Problem {}

impl ser::Error for Problem {
    fn custom<T: fmt::Display>(message: T) -> Problem {
        Problem(message.to_string())
    }
}

type Read = core::result::Result<Recipe, Problem>;
type SerializeResult = core::result::Result<(), Problem>;

/// Reads a value of at most `left` nested levels.
#[derive(Clone, Copy)]
struct Reader {
    left: usize,
}

impl Reader {
    fn read_value<T: Serialize + ?Sized>(self, value: &T) -> Read {
        let left = self.left.checked_sub(1).ok_or_else(|| Problem(refusal()))?;
        value.serialize(Reader { left })
    }

    fn items(self) -> Items {
        Items { reader: self, items: Vec::new(), variant: None }
    }

    fn entries(self) -> Entries {
        Entries { reader: self, entries: Vec::new(), key: None, variant: None, is_number: false }
    }

    /// Enters a variant, whose contents are the value of an object of one entry.
    fn variant(self) -> core::result::Result<Reader, Problem> {
        Ok(Reader { left: self.left.checked_sub(1).ok_or_else(|| Problem(refusal()))? })
    }
}

fn named(variant: Option<&str>, value: Recipe) -> Recipe {
    match variant {
        Some(name) => Recipe::Map(vec![(name.into(), value)]),
        None => value,
    }
}

struct Items {
    reader: Reader,
    items: Vec<Recipe>,
    variant: Option<&'static str>,
}

impl Items {
    fn add<T: Serialize + ?Sized>(&mut self, item: &T) -> SerializeResult {
        self.items.push(self.reader.read_value(item)?);
        Ok(())
    }

    fn finish(self) -> Read {
        Ok(named(self.variant, Recipe::List(self.items)))
    }
}

struct Entries {
    reader: Reader,
    entries: Vec<(String, Recipe)>,
    key: Option<String>,
    variant: Option<&'static str>,
    is_number: bool,
}

/// `serde_json`'s struct for numbers, with its feature `arbitrary_precision`.
const ARBITRARY_NUMBER: &str = "$serde_json::private::Number";

impl Entries {
    fn add<T: Serialize + ?Sized>(&mut self, key: &str, value: &T) -> SerializeResult {
        self.entries.push((key.into(), self.reader.read_value(value)?));
        Ok(())
    }

    fn finish(self) -> Read {
        if let (true, [(_, Recipe::Text(number))]) = (self.is_number, &self.entries[..]) {
            let integer = number.parse().map(Recipe::Integer);
            return integer
                .or_else(|_| number.parse().map(Recipe::Number))
                .map_err(|_| Problem(format!("`{number}` is not a number")));
        }
        let mut keys: Vec<&str> = self.entries.iter().map(|(key, _)| &**key).collect();
        keys.sort_unstable();
        if let Some(twice) = keys.windows(2).find(|two| two[0] == two[1]) {
            return Err(Problem(format!("duplicate key `{}`", twice[0])));
        }
        Ok(named(self.variant, Recipe::Map(self.entries)))
    }
}

impl Serializer for Reader {
    type Ok = Recipe;
    type Error = Problem;
    type SerializeSeq = Items;
    type SerializeTuple = Items;
    type SerializeTupleStruct = Items;
    type SerializeTupleVariant = Items;
    type SerializeMap = Entries;
    type SerializeStruct = Entries;
    type SerializeStructVariant = Entries;

    fn serialize_i8(self, n: i8) -> Read {
        Ok(Recipe::Integer(n.into()))
    }
    fn serialize_i16(self, n: i16) -> Read {
        Ok(Recipe::Integer(n.into()))
    }
    fn serialize_i32(self, n: i32) -> Read {
        Ok(Recipe::Integer(n.into()))
    }
    fn serialize_i64(self, n: i64) -> Read {
        Ok(Recipe::Integer(n.into()))
    }
    fn serialize_i128(self, n: i128) -> Read {
        Ok(Recipe::Integer(n))
    }
    fn serialize_u8(self, n: u8) -> Read {
        Ok(Recipe::Integer(n.into()))
    }
    fn serialize_u16(self, n: u16) -> Read {
        Ok(Recipe::Integer(n.into()))
    }
    fn serialize_u32(self, n: u32) -> Read {
        Ok(Recipe::Integer(n.into()))
    }
    fn serialize_u64(self, n: u64) -> Read {
        Ok(Recipe::Integer(n.into()))
    }
    fn serialize_u128(self, n: u128) -> Read {
        i128::try_from(n).map(Recipe::Integer).map_err(|_| Problem(format!("{n} is too large")))
    }
    fn serialize_bool(self, b: bool) -> Read {
        Ok(Recipe::Bool(b))
    }
    fn serialize_f32(self, x: f32) -> Read {
        Ok(Recipe::Number(x.into()))
    }
    fn serialize_f64(self, x: f64) -> Read {
        Ok(Recipe::Number(x))
    }
    fn serialize_char(self, c: char) -> Read {
        Ok(Recipe::text(c))
    }
    fn serialize_str(self, text: &str) -> Read {
        Ok(Recipe::text(text))
    }
    fn serialize_bytes(self, bytes: &[u8]) -> Read {
        self.collect_seq(bytes)
    }
    fn serialize_none(self) -> Read {
        Ok(Recipe::Null)
    }
    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Read {
        value.serialize(self)
    }
    fn serialize_unit(self) -> Read {
        Ok(Recipe::Null)
    }
    fn serialize_unit_struct(self, _: &'static str) -> Read {
        Ok(Recipe::Null)
    }
    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Read {
        Ok(Recipe::text(variant))
    }
    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Read {
        value.serialize(self)
    }
    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Read {
        Ok(named(Some(variant), self.read_value(value)?))
    }
    fn serialize_seq(self, _: Option<usize>) -> core::result::Result<Items, Problem> {
        Ok(self.items())
    }
    fn serialize_tuple(self, _: usize) -> core::result::Result<Items, Problem> {
        Ok(self.items())
    }
    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> core::result::Result<Items, Problem> {
        Ok(self.items())
    }
    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> core::result::Result<Items, Problem> {
        Ok(Items { variant: Some(variant), ..self.variant()?.items() })
    }
    fn serialize_map(self, _: Option<usize>) -> core::result::Result<Entries, Problem> {
        Ok(self.entries())
    }
    fn serialize_struct(self, name: &'static str, _: usize) -> core::result::Result<Entries, Problem> {
        Ok(Entries { is_number: name == ARBITRARY_NUMBER, ..self.entries() })
    }
    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> core::result::Result<Entries, Problem> {
        Ok(Entries { variant: Some(variant), ..self.variant()?.entries() })
    }
}

/// Implements serializers of lists, and of entries under known keys.
macro_rules! compound {
    ($($Trait:ident for $T:ident: $method:ident($($key:ident: $Key:ty)?);)*) => {$(
        impl ser::$Trait for $T {
            type Ok = Recipe;
            type Error = Problem;

            fn $method<T: Serialize + ?Sized>(&mut self, $($key: $Key,)? value: &T) -> SerializeResult {
                self.add($($key,)? value)
            }
            fn end(self) -> Read {
                self.finish()
            }
        }
    )*};
}
compound! {
    SerializeSeq for Items: serialize_element();
    SerializeTuple for Items: serialize_element();
    SerializeTupleStruct for Items: serialize_field();
    SerializeTupleVariant for Items: serialize_field();
    SerializeStruct for Entries: serialize_field(key: &'static str);
    SerializeStructVariant for Entries: serialize_field(key: &'static str);
}

impl ser::SerializeMap for Entries {
    type Ok = Recipe;
    type Error = Problem;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> SerializeResult {
        self.key = Some(match key.serialize(Reader { left: 0 })? {
            Recipe::Text(text) => text,
            key @ (Recipe::Integer(_) | Recipe::Bool(_)) => key.to_string(),
            other => return Err(Problem(format!("a key must be a string, found {other}"))),
        });
        Ok(())
    }
    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> SerializeResult {
        let key = self.key.take().ok_or_else(|| Problem("a value without a key".into()))?;
        self.add(&key, value)
    }
    fn end(self) -> Read {
        self.finish()
    }
}

#[cfg(test)]
mod tests {
    use serde::{Serialize, Serializer};

    use super::recipe_of;
    use crate::recipe::{ConfigError, Recipe};

    #[derive(Serialize)]
    struct Arguments {
        learning_rate: f32,
        seed: u64,
        nesterov: Option<bool>,
        window: (u8, i16),
        mask: Mask,
        limits: [Mask; 3],
    }

    #[derive(Serialize)]
    #[serde(rename_all = "snake_case")]
    enum Mask {
        All,
        Path(&'static str),
        Between(u8, u8),
        Not { ndim: u128 },
    }

    #[test]
    fn serde_values_are_read_as_their_json() {
        let limits = [Mask::Between(1, 2), Mask::Not { ndim: 3 }, Mask::All];
        let (mask, nesterov) = (Mask::Path("w"), None);
        let config = Arguments { learning_rate: 0.5, seed: u64::MAX, nesterov, window: (1, -2), mask, limits };
        let read = recipe_of(&config).expect("data");
        let expected = r#"{"learning_rate": 0.5, "seed": 18446744073709551615, "nesterov": null, "window": [1, -2], "#;
        let expected = format!(
            "{expected}{}",
            r#""mask": {"path": "w"}, "limits": [{"between": [1, 2]}, {"not": {"ndim": 3}}, "all"]}"#
        );
        assert_eq!(read.to_string(), expected);
        let json = serde_json::to_value(&config).expect("data");
        for key in ["learning_rate", "seed", "nesterov", "window", "mask", "limits"] {
            assert_eq!(recipe_of(&json[key]).as_ref().ok(), read.get(key), "{key}");
        }
    }

    struct Pairs<K>([(K, u8); 2]);

    impl<K: Serialize> Serialize for Pairs<K> {
        fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
            to.collect_map(self.0.iter().map(|(key, value)| (key, value)))
        }
    }

    #[test]
    fn keys_are_unique_strings() {
        let refused = |error: ConfigError| error.to_string();
        let twice = recipe_of(&Pairs([("a", 1), ("a", 2)])).unwrap_err();
        assert_eq!(refused(twice), "$: expected a config, found invalid data: duplicate key `a`");
        let no_text = recipe_of(&Pairs([(0.5, 1), (1.5, 2)])).unwrap_err();
        assert!(refused(no_text).ends_with("a key must be a string, found 0.5"));
        assert_eq!(recipe_of(&Pairs([(2, 1), (3, 2)])).unwrap().to_string(), r#"{"2": 1, "3": 2}"#);
        assert!(refused(recipe_of(&u128::MAX).unwrap_err()).ends_with(&format!("{} is too large", u128::MAX)));
    }

    /// Numbers as `serde_json` serializes them with the feature `arbitrary_precision`.
    #[test]
    fn numbers_of_any_precision_are_numbers() {
        #[derive(Serialize)]
        #[serde(rename = "$serde_json::private::Number")]
        struct Number {
            #[serde(rename = "$serde_json::private::Number")]
            digits: &'static str,
        }
        assert_eq!(recipe_of(&Number { digits: "18446744073709551615" }), Ok(Recipe::Integer(u64::MAX.into())));
        assert_eq!(recipe_of(&Number { digits: "3e-4" }), Ok(Recipe::Number(3e-4)));
        assert!(recipe_of(&Number { digits: "3e-" }).unwrap_err().to_string().ends_with("`3e-` is not a number"));
    }
}
