//! Transformations as data: names and arguments.
//!
//! [`Part::recipe`](crate::part::Part::recipe) describes a transformation in the grammar of the configs: `{"adam":
//! {"learning_rate": 0.1, ...}}`. The feature `config` converts it to JSON and back into a transformation;
//! [`plan`](crate::GradientTransformation::plan) checks it for mistakes.

use core::fmt;

mod error;
#[cfg(feature = "serde")]
pub(crate) mod json;
mod read;
pub(crate) mod values;

pub use error::{ConfigError, Result};
pub use read::{Builder, Fields, Fixed, FromRecipe, Node, Required, Setting, Show};
pub(crate) use values::Entries;
pub(crate) use values::words;

use crate::element::DType;

/// A value of a config: JSON, with integers apart from floats, and opaque values.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Recipe {
    /// No value.
    Null,
    /// True or false.
    Bool(bool),
    /// A whole number.
    Integer(i128),
    /// A number.
    Number(f64),
    /// A text.
    Text(String),
    /// Values in order.
    List(Vec<Recipe>),
    /// Values by name, in order.
    Map(Vec<(String, Recipe)>),
    /// A value that is not data, such as a function; its name.
    Opaque(String),
}

impl Recipe {
    /// Returns `{name: {argument: value, ..}}`.
    ///
    /// ```
    /// use gradchain::recipe::Recipe;
    /// let recipe = Recipe::call("clip", [("max_delta", Recipe::Number(1.0))]);
    /// assert_eq!(recipe.to_string(), r#"{"clip": {"max_delta": 1.0}}"#);
    /// ```
    pub fn call<'a>(name: &str, arguments: impl IntoIterator<Item = (&'a str, Recipe)>) -> Recipe {
        Recipe::call_of(name, Recipe::map(arguments))
    }

    fn call_of(name: &str, arguments: Recipe) -> Recipe {
        Recipe::Map(vec![(name.into(), arguments)])
    }

    /// Returns `{key: value, ..}`.
    pub fn map<'a>(entries: impl IntoIterator<Item = (&'a str, Recipe)>) -> Recipe {
        Recipe::map_of(&mut entries.into_iter())
    }

    /// As [`map`](Recipe::map), compiled once.
    fn map_of(entries: &mut dyn Iterator<Item = (&str, Recipe)>) -> Recipe {
        Recipe::Map(entries.map(|(key, value)| (key.into(), value)).collect())
    }

    /// Returns a text.
    pub fn text(text: impl Into<String>) -> Recipe {
        Recipe::Text(text.into())
    }

    /// Returns the name and the arguments of a [`call`](Recipe::call).
    pub fn as_call(&self) -> Option<(&str, &Recipe)> {
        match self {
            Recipe::Map(entries) => match &entries[..] {
                [(name, arguments)] => Some((name, arguments)),
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns the value under a key.
    pub fn get(&self, key: &str) -> Option<&Recipe> {
        match self {
            Recipe::Map(entries) => entries.iter().find(|(k, _)| k == key).map(|(_, value)| value),
            _ => None,
        }
    }

    /// Returns the values of a list; empty for anything else.
    pub fn items(&self) -> &[Recipe] {
        match self {
            Recipe::List(items) => items,
            _ => &[],
        }
    }

    /// Returns the value as a number, if it is one.
    pub fn as_number(&self) -> Option<f64> {
        match *self {
            Recipe::Number(x) => Some(x),
            Recipe::Integer(n) => Some(n as f64),
            _ => None,
        }
    }

    /// Visits every [`Opaque`](Recipe::Opaque) value inside, with its place.
    pub fn visit_opaque(&self, visit: &mut dyn FnMut(&str, &str)) {
        self.visit_at("$", visit);
    }

    fn visit_at(&self, place: &str, visit: &mut dyn FnMut(&str, &str)) {
        match self {
            Recipe::Opaque(what) => visit(place, what),
            Recipe::List(items) => {
                items.iter().enumerate().for_each(|(i, item)| item.visit_at(&format!("{place}[{i}]"), visit));
            }
            Recipe::Map(entries) => {
                entries.iter().for_each(|(key, value)| value.visit_at(&format!("{place}.{key}"), visit));
            }
            _ => {}
        }
    }
}

/// Writes JSON, with opaque values in angle brackets, and NaN and infinities as strings.
impl fmt::Display for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Recipe::Null => f.write_str("null"),
            Recipe::Bool(b) => write!(f, "{b}"),
            Recipe::Integer(n) => write!(f, "{n}"),
            Recipe::Number(x) if x.is_nan() => f.write_str("\"nan\""),
            Recipe::Number(x) if x.is_infinite() => write!(f, "\"{}inf\"", if *x < 0.0 { "-" } else { "" }),
            Recipe::Number(x) => write!(f, "{x:?}"),
            Recipe::Text(text) => write!(f, "{text:?}"),
            Recipe::List(items) => {
                f.write_str("[")?;
                for (i, item) in items.iter().enumerate() {
                    write!(f, "{}{item}", if i == 0 { "" } else { ", " })?;
                }
                f.write_str("]")
            }
            Recipe::Map(entries) => {
                f.write_str("{")?;
                for (i, (key, value)) in entries.iter().enumerate() {
                    write!(f, "{}{key:?}: {value}", if i == 0 { "" } else { ", " })?;
                }
                f.write_str("}")
            }
            Recipe::Opaque(what) => write!(f, "<{what}>"),
        }
    }
}

/// A possible argument of a transformation.
pub trait ToRecipe {
    /// Returns the value as data.
    fn to_recipe(&self) -> Recipe;
}

impl ToRecipe for bool {
    fn to_recipe(&self) -> Recipe {
        Recipe::Bool(*self)
    }
}

impl ToRecipe for f64 {
    fn to_recipe(&self) -> Recipe {
        Recipe::Number(*self)
    }
}

impl ToRecipe for i32 {
    fn to_recipe(&self) -> Recipe {
        Recipe::Integer((*self).into())
    }
}

impl ToRecipe for str {
    fn to_recipe(&self) -> Recipe {
        Recipe::text(self)
    }
}

impl<T: ToRecipe + ?Sized> ToRecipe for &T {
    fn to_recipe(&self) -> Recipe {
        T::to_recipe(self)
    }
}

impl ToRecipe for String {
    fn to_recipe(&self) -> Recipe {
        Recipe::text(self)
    }
}

impl ToRecipe for DType {
    fn to_recipe(&self) -> Recipe {
        Recipe::text(self.name())
    }
}

impl<T: ToRecipe> ToRecipe for Option<T> {
    fn to_recipe(&self) -> Recipe {
        self.as_ref().map_or(Recipe::Null, T::to_recipe)
    }
}

impl<T: ToRecipe> ToRecipe for [T] {
    fn to_recipe(&self) -> Recipe {
        Recipe::List(self.iter().map(T::to_recipe).collect())
    }
}

impl<T: ToRecipe> ToRecipe for Vec<T> {
    fn to_recipe(&self) -> Recipe {
        self[..].to_recipe()
    }
}

impl<T: ToRecipe, const N: usize> ToRecipe for [T; N] {
    fn to_recipe(&self) -> Recipe {
        self[..].to_recipe()
    }
}

impl<A: ToRecipe, B: ToRecipe> ToRecipe for (A, B) {
    fn to_recipe(&self) -> Recipe {
        Recipe::List(vec![self.0.to_recipe(), self.1.to_recipe()])
    }
}

impl ToRecipe for Recipe {
    fn to_recipe(&self) -> Recipe {
        self.clone()
    }
}
