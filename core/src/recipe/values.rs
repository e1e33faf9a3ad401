//! Reading of plain values, and writing of integers.

use super::{ConfigError, FromRecipe, Node, Recipe, Result, ToRecipe};
use crate::element::DType;

/// Reads numbers, and strings for those that JSON (NaN, infinities) and TOML (integers beyond `i64`) lack.
impl FromRecipe for f64 {
    fn from_recipe(node: &Node<'_>) -> Result<f64> {
        let special = || match node.text("a number")? {
            "inf" => Ok(f64::INFINITY),
            "-inf" => Ok(f64::NEG_INFINITY),
            "nan" => Ok(f64::NAN),
            text => match text.parse::<i128>() {
                Ok(large) if i64::try_from(large).is_err() => Ok(large as f64),
                _ => Err(node.wrong("a number")),
            },
        };
        node.value().as_number().map_or_else(special, Ok)
    }

    fn schema() -> String {
        r#"{"type": ["number", "string"]}"#.into()
    }
}

/// Implements integers; `$expected` is for messages.
macro_rules! integers {
    ($($T:ty, $expected:literal, $schema:literal;)*) => {$(
        impl ToRecipe for $T {
            fn to_recipe(&self) -> Recipe {
                Recipe::Integer(*self as i128)
            }
        }

        /// Reads an integer, or a string for one too large for JSON.
        impl FromRecipe for $T {
            fn from_recipe(node: &Node<'_>) -> Result<$T> {
                let number = match node.value() {
                    Recipe::Integer(n) => *n,
                    Recipe::Text(text) => text.parse::<i128>().map_err(|_| node.wrong($expected))?,
                    _ => return Err(node.wrong($expected)),
                };
                <$T>::try_from(number).map_err(|_| node.wrong($expected))
            }

            fn schema() -> String {
                $schema.into()
            }
        }
    )*};
}
integers! {
    u32, "a non-negative integer of at most 32 bits", r#"{"type": "integer", "minimum": 0}"#;
    u64, "a non-negative integer", r#"{"type": "integer", "minimum": 0}"#;
    usize, "a non-negative integer", r#"{"type": "integer", "minimum": 0}"#;
    i64, "an integer", r#"{"type": "integer"}"#;
    isize, "an integer", r#"{"type": "integer"}"#;
}

impl FromRecipe for bool {
    fn from_recipe(node: &Node<'_>) -> Result<bool> {
        if let Recipe::Bool(b) = node.value() { Ok(*b) } else { Err(node.wrong("true or false")) }
    }

    fn schema() -> String {
        r#"{"type": "boolean"}"#.into()
    }
}

impl FromRecipe for String {
    fn from_recipe(node: &Node<'_>) -> Result<String> {
        node.text("a string").map(String::from)
    }

    fn schema() -> String {
        r#"{"type": "string"}"#.into()
    }
}

impl<T: FromRecipe> FromRecipe for Option<T> {
    fn from_recipe(node: &Node<'_>) -> Result<Option<T>> {
        if node.is_none() { Ok(None) } else { T::from_recipe(node).map(Some) }
    }

    fn schema() -> String {
        format!(r#"{{"anyOf": [{{"enum": [null, "none"]}}, {}]}}"#, T::schema())
    }
}

impl<T: FromRecipe> FromRecipe for Vec<T> {
    fn from_recipe(node: &Node<'_>) -> Result<Vec<T>> {
        ConfigError::collect(node.list()?.iter().map(T::from_recipe))
    }

    fn schema() -> String {
        format!(r#"{{"type": "array", "items": {}}}"#, T::schema())
    }
}

impl<A: FromRecipe, B: FromRecipe> FromRecipe for (A, B) {
    fn from_recipe(node: &Node<'_>) -> Result<(A, B)> {
        match &node.list()?[..] {
            [a, b] => ConfigError::both(a.read(), b.read()),
            _ => Err(node.wrong("a pair")),
        }
    }

    fn schema() -> String {
        let (a, b) = (A::schema(), B::schema());
        format!(r#"{{"type": "array", "prefixItems": [{a}, {b}], "minItems": 2, "maxItems": 2}}"#)
    }
}

/// A value or a list of values.
pub struct OneOrMore<T>(pub Vec<T>);

impl<T: FromRecipe> FromRecipe for OneOrMore<T> {
    fn from_recipe(node: &Node<'_>) -> Result<OneOrMore<T>> {
        Ok(OneOrMore(if let Recipe::List(_) = node.value() { node.read()? } else { vec![node.read()?] }))
    }

    fn schema() -> String {
        format!(r#"{{"anyOf": [{}, {}]}}"#, T::schema(), Vec::<T>::schema())
    }
}

/// Values by name, in order.
pub struct Entries<T>(pub Vec<(String, T)>);

impl<T: FromRecipe> FromRecipe for Entries<T> {
    fn from_recipe(node: &Node<'_>) -> Result<Entries<T>> {
        let each = |(name, node): (&str, Node<'_>)| Ok((String::from(name), node.read()?));
        ConfigError::collect(node.entries()?.into_iter().map(each)).map(Entries)
    }

    fn schema() -> String {
        format!(r#"{{"type": "object", "additionalProperties": {}}}"#, T::schema())
    }
}

impl FromRecipe for DType {
    fn from_recipe(node: &Node<'_>) -> Result<DType> {
        let name = node.text("a type: \"f16\", \"bf16\", \"f32\" or \"f64\"")?;
        let known = ["f16", "bf16", "f32", "f64"];
        let dtype = DType::from_name(name).ok_or_else(|| ConfigError::unknown(node.place(), "type", name, known))?;
        if dtype.is_supported() { Ok(dtype) } else { Err(node.wrong("f32 or f64, or the feature `half`")) }
    }

    fn schema() -> String {
        r#"{"enum": ["f16", "bf16", "f32", "f64"]}"#.into()
    }
}

/// Implements [`ToRecipe`](crate::recipe::ToRecipe) and [`FromRecipe`] for an enum, by its variants' identifiers.
#[doc(hidden)]
#[macro_export]
macro_rules! words {
    ($T:ty { $($variant:ident = $word:literal),* $(,)? }) => {
        impl $crate::recipe::ToRecipe for $T {
            fn to_recipe(&self) -> $crate::recipe::Recipe {
                $crate::recipe::Recipe::text(match self {
                    $(<$T>::$variant => $word,)*
                })
            }
        }

        impl $crate::recipe::FromRecipe for $T {
            fn from_recipe(node: &$crate::recipe::Node<'_>) -> $crate::recipe::Result<Self> {
                node.choice(&[$(($word, <$T>::$variant)),*])
            }

            fn schema() -> String {
                format!("{{\"enum\": {:?}}}", [$($word),*])
            }
        }
    };
}
pub(crate) use words;

words!(crate::layout::Layout { InOut = "in_out", OutIn = "out_in" });
