//! Reading of recipes: values with their places.

use core::any::Any;

use super::{ConfigError, Recipe, Result, ToRecipe};
use crate::error::is_suggestion;

/// A value of a config, and its place in it: `$.chain[1].adamw.mask`.
#[derive(Clone)]
pub struct Node<'a> {
    place: String,
    value: &'a Recipe,
    builder: &'a dyn Builder,
}

/// Builder of the transformations inside a config.
pub trait Builder {
    /// Replaces `into`, of the builder's own type of transformations, by the transformation at `node`.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be built.
    fn build_into(&self, node: &Node<'_>, into: &mut dyn Any) -> Result<()>;
}

/// A type that can be read from a config: the inverse of [`ToRecipe`].
pub trait FromRecipe: Sized {
    /// Reads the value at a place.
    ///
    /// # Errors
    ///
    /// Fails with the expected and the found value, and the place.
    fn from_recipe(node: &Node<'_>) -> Result<Self>;

    /// Returns the [JSON Schema](https://json-schema.org/draft/2020-12) of readable values; `true` is anything.
    fn schema() -> String {
        String::from("true")
    }

    /// Replaces the value by that at a place.
    ///
    /// # Errors
    ///
    /// As [`from_recipe`](FromRecipe::from_recipe).
    fn set(&mut self, node: &Node<'_>) -> Result<()> {
        *self = Self::from_recipe(node)?;
        Ok(())
    }

    /// Returns whether it is a placeholder for a required value.
    fn is_missing(&self) -> bool {
        false
    }
}

/// An argument that can be written to configs and read from them, of any type with [`ToRecipe`] and [`FromRecipe`].
pub trait Setting: ToRecipe {
    /// Replaces the value by that at a place.
    ///
    /// # Errors
    ///
    /// Fails for any other value.
    fn set(&mut self, node: &Node<'_>) -> Result<()>;

    /// Returns the JSON Schema of possible values.
    fn schema(&self) -> String;

    /// Returns whether it must be given.
    fn is_missing(&self) -> bool;
}

impl<T: ToRecipe + FromRecipe> Setting for T {
    fn set(&mut self, node: &Node<'_>) -> Result<()> {
        FromRecipe::set(self, node)
    }
    fn schema(&self) -> String {
        T::schema()
    }
    fn is_missing(&self) -> bool {
        FromRecipe::is_missing(self)
    }
}

/// An argument without a default: a config must give it, whatever its current value.
pub struct Required<'a, T>(pub &'a mut T);

impl<T: ToRecipe> ToRecipe for Required<'_, T> {
    fn to_recipe(&self) -> Recipe {
        self.0.to_recipe()
    }
}

impl<T: ToRecipe + FromRecipe> Setting for Required<'_, T> {
    fn set(&mut self, node: &Node<'_>) -> Result<()> {
        FromRecipe::set(self.0, node)
    }
    fn schema(&self) -> String {
        T::schema()
    }
    fn is_missing(&self) -> bool {
        true
    }
}

/// An argument determined by the type: only an equal value is accepted.
pub struct Fixed<T>(pub T);

impl<T: ToRecipe> ToRecipe for Fixed<T> {
    fn to_recipe(&self) -> Recipe {
        self.0.to_recipe()
    }
}

impl<T: ToRecipe> Setting for Fixed<T> {
    fn set(&mut self, node: &Node<'_>) -> Result<()> {
        let own = self.0.to_recipe();
        let none = own == Recipe::Null && node.is_none();
        if none || *node.value() == own { Ok(()) } else { Err(node.wrong(&own.to_string())) }
    }
    fn schema(&self) -> String {
        format!("{{\"enum\": [{}]}}", self.0.to_recipe())
    }
    fn is_missing(&self) -> bool {
        false
    }
}

impl<'a> Node<'a> {
    /// Returns the root of a config.
    pub fn root(value: &'a Recipe, builder: &'a dyn Builder) -> Node<'a> {
        Node { place: "$".into(), value, builder }
    }

    /// Returns its place.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Returns its value.
    pub fn value(&self) -> &'a Recipe {
        self.value
    }

    fn child(&self, place: String, value: &'a Recipe) -> Node<'a> {
        Node { place, value, builder: self.builder }
    }

    /// Returns an error that another value was expected here.
    pub fn wrong(&self, expected: &str) -> ConfigError {
        ConfigError::wrong(&self.place, expected, self.value)
    }

    /// Returns the entries of an object, in order.
    ///
    /// # Errors
    ///
    /// Fails if it is no object.
    pub fn entries(&self) -> Result<Vec<(&'a str, Node<'a>)>> {
        let Recipe::Map(entries) = self.value else { return Err(self.wrong("an object")) };
        let inside = |(key, value): &'a (String, Recipe)| (&**key, self.child(format!("{}.{key}", self.place), value));
        Ok(entries.iter().map(inside).collect())
    }

    /// Returns the name and the value of an object of one entry.
    ///
    /// # Errors
    ///
    /// Fails with `expected` if it is no such object.
    pub fn single(&self, expected: &str) -> Result<(&'a str, Node<'a>)> {
        match <[_; 1]>::try_from(self.entries().map_err(|_| self.wrong(expected))?) {
            Ok([entry]) => Ok(entry),
            Err(_) => Err(self.wrong(expected)),
        }
    }

    /// Returns the name of a transformation, and its arguments.
    ///
    /// # Errors
    ///
    /// Fails if it is none; for common mistakes the message has the correct form.
    pub fn call(&self) -> Result<(&'a str, Node<'a>)> {
        const EXPECTED: &str = "a transformation: {name: arguments}";
        let several = format!("{EXPECTED}, or {{\"chain\": [..]}} for several");
        match self.value {
            Recipe::Text(name) => Err(self.wrong(&format!("a transformation: {{{name:?}: {{}}}}"))),
            Recipe::List(_) => Err(self.wrong(&several)),
            Recipe::Map(entries) if entries.len() > 1 => {
                let names: Vec<&str> = entries.iter().map(|(name, _)| &**name).collect();
                let found = format!("{} in one object: {}", names.len(), names.join(", "));
                let name = entries.iter().find_map(|(key, value)| match value {
                    Recipe::Text(name) if matches!(&**key, "name" | "type") => Some(name),
                    _ => None,
                });
                let expected = name.map_or(several, |name| format!("a transformation: {{{name:?}: {{..}}}}"));
                Err(ConfigError::wrong(&self.place, &expected, found))
            }
            _ => self.single(EXPECTED),
        }
    }

    /// Returns the values of a list.
    ///
    /// # Errors
    ///
    /// Fails if it is no list.
    pub fn list(&self) -> Result<Vec<Node<'a>>> {
        let Recipe::List(items) = self.value else { return Err(self.wrong("a list")) };
        Ok(items.iter().enumerate().map(|(i, item)| self.child(format!("{}[{i}]", self.place), item)).collect())
    }

    /// Returns whether it is none: `null`, or `"none"` in formats without null, such as TOML.
    pub fn is_none(&self) -> bool {
        matches!(self.value, Recipe::Null) || matches!(self.value, Recipe::Text(text) if text == "none")
    }

    /// Returns a text.
    ///
    /// # Errors
    ///
    /// Fails with `expected` if it is no text.
    pub fn text(&self, expected: &str) -> Result<&'a str> {
        if let Recipe::Text(text) = self.value { Ok(text) } else { Err(self.wrong(expected)) }
    }

    /// Returns one of a few choices by name.
    ///
    /// # Errors
    ///
    /// Fails for any other name.
    pub fn choice<T: Copy>(&self, choices: &[(&str, T)]) -> Result<T> {
        let found = self.text("a string")?;
        let mut names = Vec::new();
        for (name, value) in choices {
            if *name == found {
                return Ok(*value);
            }
            names.push(*name);
        }
        Err(ConfigError::unknown(&self.place, "choice", found, names))
    }

    /// Reads the value.
    ///
    /// # Errors
    ///
    /// Fails if the value is of another form.
    pub fn read<T: FromRecipe>(&self) -> Result<T> {
        T::from_recipe(self)
    }

    /// Replaces `into` by the transformation here.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be built.
    pub fn build_into(&self, into: &mut dyn Any) -> Result<()> {
        self.builder.build_into(self, into)
    }

    /// Returns the entries of an object with the names `known`, and no others.
    ///
    /// # Errors
    ///
    /// Fails if it is no object, or has other names: all of them are listed.
    pub fn fields(&self, known: &[&str]) -> Result<Fields<'a>> {
        let entries = self.entries()?;
        let others = entries.iter().filter(|(key, _)| !known.contains(key));
        let unknown = |(key, _): &(&str, _)| ConfigError::unknown(&self.place, "argument", key, known.iter().copied());
        ConfigError::all(others.map(unknown))?;
        Ok(Fields { place: self.place.clone(), entries })
    }

    /// Sets arguments from the entries of an object.
    ///
    /// These are all that `arguments` shows, except those in `read_keys`. Those in `read_keys` and `ignored_keys` may
    /// be present in any case.
    ///
    /// # Errors
    ///
    /// Fails with all problems at once: entries that are no argument, missing arguments, values of another form. An
    /// entry with a name near that of a missing argument is an error too, and is checked as that argument.
    pub fn set_all(
        &self,
        read_keys: &[&'static str],
        ignored_keys: &[&'static str],
        arguments: &mut dyn FnMut(&mut Show<'_>),
    ) -> Result<()> {
        let (mut known, mut required) = ([read_keys, ignored_keys].concat(), Vec::new());
        arguments(&mut |name, setting| {
            if !read_keys.contains(&name) {
                known.push(name);
                required.extend(setting.is_missing().then(|| format!("{name:?}: ..")));
            }
        });
        let entries = self.entries().map_err(|_| self.wrong(&format!("{{{}}}", required.join(", "))))?;
        let unknown: Vec<_> = entries.iter().filter(|(key, _)| !known.contains(key)).collect();
        let (mut missing, mut problems) = (Vec::new(), Vec::new());
        arguments(&mut |name, setting| {
            if read_keys.contains(&name) {
                return;
            }
            let given = entries.iter().find(|(key, _)| *key == name);
            let meant =
                || unknown.iter().copied().find(|(key, _)| setting.is_missing() && is_suggestion(key, &known, name));
            match given.or_else(meant) {
                Some((_, node)) => problems.extend(setting.set(node).err()),
                None if setting.is_missing() => missing.push(name),
                None => {}
            }
        });
        let unknown = unknown.iter();
        let unknown = unknown.map(|(key, _)| ConfigError::unknown(&self.place, "argument", key, known.iter().copied()));
        let missing = missing.iter().map(|name| absent(&self.place, name));
        ConfigError::all(unknown.chain(missing).chain(problems))
    }
}

fn absent(place: &str, name: &str) -> ConfigError {
    ConfigError::wrong(place, format!("an argument `{name}`"), "none")
}

/// Receives arguments in turn.
pub type Show<'a> = dyn FnMut(&'static str, &mut dyn Setting) + 'a;

/// The entries of an object, by name.
pub struct Fields<'a> {
    place: String,
    entries: Vec<(&'a str, Node<'a>)>,
}

impl<'a> Fields<'a> {
    /// Returns the value of this name, if it is given.
    pub fn get(&self, name: &str) -> Option<&Node<'a>> {
        self.entries.iter().find(|(key, _)| *key == name).map(|(_, node)| node)
    }

    /// Returns a required value.
    ///
    /// # Errors
    ///
    /// Fails if it is missing, or is of another form.
    pub fn required<T: FromRecipe>(&self, name: &str) -> Result<T> {
        self.get(name).ok_or_else(|| absent(&self.place, name))?.read()
    }

    /// Returns a value, or a default.
    ///
    /// # Errors
    ///
    /// Fails if it is of another form.
    pub fn or<T: FromRecipe>(&self, name: &str, default: T) -> Result<T> {
        self.get(name).map_or(Ok(default), Node::read)
    }
}
