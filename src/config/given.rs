//! What a config gives to what is being made.

use core::cell::RefCell;

use crate::recipe::{ConfigError, FromRecipe, Node, Result};

/// The arguments of a transformation, before it is made.
pub(super) struct Given<'a> {
    /// Nothing, if it is only to find out what can be given.
    entries: Option<Vec<(&'a str, Node<'a>)>>,
    place: &'a str,
    /// What must be given, as far as was asked.
    needed: RefCell<Vec<&'static str>>,
}

impl<'a> Given<'a> {
    pub(super) fn of(node: &'a Node<'a>) -> Result<Given<'a>> {
        Ok(Given { entries: Some(node.entries()?), place: node.place(), needed: RefCell::default() })
    }

    /// For what is made to see what it is.
    pub(super) fn nothing() -> Given<'a> {
        Given { entries: None, place: "$", needed: RefCell::default() }
    }

    /// The argument of this name, unless it is none.
    pub(super) fn get(&self, name: &str) -> Option<&Node<'a>> {
        let entries = self.entries.as_deref().unwrap_or_default();
        entries.iter().find(|(key, _)| *key == name).map(|(_, node)| node).filter(|node| !node.is_none())
    }

    /// Whether there is an argument of this name, be it `null`.
    pub(super) fn has(&self, name: &str) -> bool {
        self.entries.iter().flatten().any(|(key, _)| *key == name)
    }

    /// The argument, or what stands for it where there is none.
    pub(super) fn or<T: FromRecipe>(&self, name: &str, default: T) -> Result<T> {
        self.get(name).map_or(Ok(default), Node::read)
    }

    /// The argument, which must be given; `example` is for what is made to see what it is.
    pub(super) fn required<T: FromRecipe>(&self, name: &'static str, example: T) -> Result<T> {
        self.needed.borrow_mut().push(name);
        match self.get(name) {
            Some(node) => node.read(),
            None if self.entries.is_none() => Ok(example),
            None => Err(ConfigError::wrong(self.place, format!("an argument `{name}`"), "none")),
        }
    }

    /// Whether this must be given.
    pub(super) fn needs(&self, name: &str) -> bool {
        self.needed.borrow().contains(&name)
    }

    /// Refuses an argument of Optax that there is nothing for here, unless it is off.
    pub(super) fn off(&self, name: &str) -> Result<()> {
        match self.get(name) {
            Some(node) if !matches!(node.read(), Ok(false)) => Err(node.wrong("null or false")),
            _ => Ok(()),
        }
    }

    /// An error about all of it.
    pub(super) fn refuse(&self, expected: &str, found: &str) -> ConfigError {
        ConfigError::wrong(self.place, expected, found)
    }
}
