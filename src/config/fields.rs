//! The arguments in a config of a transformation being built.

use core::cell::RefCell;

use crate::recipe::{ConfigError, FromRecipe, Node, Result};

/// The arguments of a transformation, before it is built.
pub(super) struct Fields<'a> {
    /// None for a dry run that only finds out the possible arguments.
    entries: Option<Vec<(&'a str, Node<'a>)>>,
    place: &'a str,
    /// The required arguments requested so far.
    needed: RefCell<Vec<&'static str>>,
}

impl<'a> Fields<'a> {
    pub(super) fn of(node: &'a Node<'a>) -> Result<Fields<'a>> {
        Ok(Fields { entries: Some(node.entries()?), place: node.place(), needed: RefCell::default() })
    }

    /// Returns no arguments, for a dry run.
    pub(super) fn nothing() -> Fields<'a> {
        Fields { entries: None, place: "$", needed: RefCell::default() }
    }

    /// Returns the argument of this name, unless it is none.
    pub(super) fn get(&self, name: &str) -> Option<&Node<'a>> {
        let entries = self.entries.as_deref().unwrap_or_default();
        entries.iter().find(|(key, _)| *key == name).map(|(_, node)| node).filter(|node| !node.is_none())
    }

    /// Returns whether an argument of this name is given, even `null`.
    pub(super) fn has(&self, name: &str) -> bool {
        self.entries.iter().flatten().any(|(key, _)| *key == name)
    }

    /// Returns the argument, or a default.
    pub(super) fn or<T: FromRecipe>(&self, name: &str, default: T) -> Result<T> {
        self.get(name).map_or(Ok(default), Node::read)
    }

    /// Returns the argument, which must be given; `example` is the value of a dry run.
    pub(super) fn required<T: FromRecipe>(&self, name: &'static str, example: T) -> Result<T> {
        self.needed.borrow_mut().push(name);
        match self.get(name) {
            Some(node) => node.read(),
            None if self.entries.is_none() => Ok(example),
            None => Err(ConfigError::wrong(self.place, format!("an argument `{name}`"), "none")),
        }
    }

    /// Returns whether this must be given.
    pub(super) fn needs(&self, name: &str) -> bool {
        self.needed.borrow().contains(&name)
    }

    /// Refuses an argument of Optax without an equivalent here, unless it is off.
    pub(super) fn off(&self, name: &str) -> Result<()> {
        match self.get(name) {
            Some(node) if !matches!(node.read(), Ok(false)) => Err(node.wrong("null or false")),
            _ => Ok(()),
        }
    }

    /// Returns an error about all arguments.
    pub(super) fn refuse(&self, expected: &str, found: &str) -> ConfigError {
        ConfigError::wrong(self.place, expected, found)
    }
}
