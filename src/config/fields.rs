//! The arguments in a config of a transformation being built.

use core::cell::RefCell;

use crate::recipe::{ConfigError, FromRecipe, Node, Result};

pub(super) struct Fields<'a> {
    /// `None` in a dry run, which finds the possible arguments.
    entries: Option<Vec<(&'a str, Node<'a>)>>,
    place: &'a str,
    /// Required arguments requested so far.
    needed: RefCell<Vec<&'static str>>,
}

impl<'a> Fields<'a> {
    pub(super) fn of(node: &'a Node<'a>) -> Result<Fields<'a>> {
        Ok(Fields { entries: Some(node.entries()?), place: node.place(), needed: RefCell::default() })
    }

    pub(super) fn empty() -> Fields<'a> {
        Fields { entries: None, place: "$", needed: RefCell::default() }
    }

    /// Returns the argument, unless it is none.
    pub(super) fn get(&self, name: &str) -> Option<&Node<'a>> {
        let entries = self.entries.as_deref().unwrap_or_default();
        entries.iter().find(|(key, _)| *key == name).map(|(_, node)| node).filter(|node| !node.is_none())
    }

    /// Returns true if given, even as `null`.
    pub(super) fn has(&self, name: &str) -> bool {
        self.entries.iter().flatten().any(|(key, _)| *key == name)
    }

    pub(super) fn or<T: FromRecipe>(&self, name: &str, default: T) -> Result<T> {
        self.get(name).map_or(Ok(default), Node::read)
    }

    /// Returns a required argument; `example` in a dry run.
    pub(super) fn required<T: FromRecipe>(&self, name: &'static str, example: T) -> Result<T> {
        self.needed.borrow_mut().push(name);
        match self.get(name) {
            Some(node) => node.read(),
            None if self.entries.is_none() => Ok(example),
            None => Err(ConfigError::wrong(self.place, format!("an argument `{name}`"), "none")),
        }
    }

    pub(super) fn needs(&self, name: &str) -> bool {
        self.needed.borrow().contains(&name)
    }

    /// Refuses an argument of Optax without an equivalent, unless it is off.
    #[cfg(feature = "minimize")]
    pub(super) fn off(&self, name: &str) -> Result<()> {
        match self.get(name) {
            Some(node) if !matches!(node.read(), Ok(false)) => Err(node.wrong("null or false")),
            _ => Ok(()),
        }
    }

    pub(super) fn refuse(&self, expected: &str, found: &str) -> ConfigError {
        ConfigError::wrong(self.place, expected, found)
    }
}
