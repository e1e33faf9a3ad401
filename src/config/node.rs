//! JSON values with the place where they stand.

use std::cell::RefCell;
use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::error::{ConfigError, Result};

/// A JSON value and its place.
#[derive(Clone, Debug)]
pub(super) struct Node<'a> {
    pub(super) place: String,
    pub(super) value: &'a Value,
}

impl<'a> Node<'a> {
    pub(super) fn root(value: &'a Value) -> Node<'a> {
        Node { place: "$".into(), value }
    }

    pub(super) fn wrong(&self, expected: &str) -> ConfigError {
        ConfigError::wrong(&self.place, expected, self.value)
    }

    pub(super) fn object(&self) -> Result<&'a Map<String, Value>> {
        self.value.as_object().ok_or_else(|| self.wrong("an object"))
    }

    /// The entries of an object.
    pub(super) fn entries(&self) -> Result<Vec<(&'a str, Node<'a>)>> {
        let inside = |(key, value): (&'a String, _)| (&**key, Node { place: format!("{}.{key}", self.place), value });
        Ok(self.object()?.iter().map(inside).collect())
    }

    /// The name and the value of an object of one entry.
    pub(super) fn single(&self, expected: &str) -> Result<(&'a str, Node<'a>)> {
        match <[_; 1]>::try_from(self.entries().map_err(|_| self.wrong(expected))?) {
            Ok([entry]) => Ok(entry),
            Err(_) => Err(self.wrong(expected)),
        }
    }

    pub(super) fn list(&self) -> Result<Vec<Node<'a>>> {
        let values = self.value.as_array().ok_or_else(|| self.wrong("a list"))?;
        let inside = |(i, value)| Node { place: format!("{}[{i}]", self.place), value };
        Ok(values.iter().enumerate().map(inside).collect())
    }

    pub(super) fn text(&self, expected: &str) -> Result<&'a str> {
        self.value.as_str().ok_or_else(|| self.wrong(expected))
    }

    pub(super) fn read<T: Read>(&self) -> Result<T> {
        T::read(self)
    }

    /// One of a few words.
    pub(super) fn choice<T: Copy>(&self, choices: &[(&str, T)]) -> Result<T> {
        let found = self.text("a string")?;
        let names = || choices.iter().map(|(name, _)| *name);
        let chosen = choices.iter().find(|(name, _)| *name == found);
        chosen.map(|(_, value)| *value).ok_or_else(|| ConfigError::unknown(&self.place, "choice", found, names()))
    }
}

/// What can be read from a JSON value.
pub(super) trait Read: Sized {
    fn read(node: &Node<'_>) -> Result<Self>;
}

/// The arguments of one transformation or schedule. Whatever is asked for is an argument; what was given and never asked
/// for is refused by [`finish`](Args::finish).
pub(super) struct Args<'a> {
    pub(super) name: &'a str,
    pub(super) node: Node<'a>,
    map: &'a Map<String, Value>,
    asked: RefCell<BTreeSet<&'static str>>,
}

impl<'a> Args<'a> {
    pub(super) fn new(name: &'a str, node: Node<'a>) -> Result<Args<'a>> {
        let map = node.object()?;
        Ok(Args { name, node, map, asked: RefCell::default() })
    }

    /// The argument of this name, if it is given.
    pub(super) fn get(&self, name: &'static str) -> Option<Node<'a>> {
        self.asked.borrow_mut().insert(name);
        self.map.get(name).map(|value| Node { place: format!("{}.{name}", self.node.place), value })
    }

    pub(super) fn required<T: Read>(&self, name: &'static str) -> Result<T> {
        let missing = || ConfigError::wrong(&self.node.place, format!("an argument `{name}`"), "none");
        self.get(name).ok_or_else(missing)?.read()
    }

    pub(super) fn or<T: Read>(&self, name: &'static str, default: T) -> Result<T> {
        self.get(name).map_or(Ok(default), |node| node.read())
    }

    /// Refuses arguments that nobody asked for.
    pub(super) fn finish(&self) -> Result<()> {
        let asked = self.asked.borrow();
        match self.map.keys().find(|key| !asked.contains(&***key)) {
            Some(key) => Err(ConfigError::unknown(&self.node.place, "argument", key, asked.iter().copied())),
            None => Ok(()),
        }
    }
}

/// JSON has no NaN and no infinities: they are strings.
impl Read for f64 {
    fn read(node: &Node<'_>) -> Result<f64> {
        match (node.value.as_f64(), node.value.as_str()) {
            (Some(number), _) => Ok(number),
            (None, Some("inf")) => Ok(f64::INFINITY),
            (None, Some("-inf")) => Ok(f64::NEG_INFINITY),
            (None, Some("nan")) => Ok(f64::NAN),
            _ => Err(node.wrong("a number")),
        }
    }
}

impl Read for u64 {
    fn read(node: &Node<'_>) -> Result<u64> {
        node.value.as_u64().ok_or_else(|| node.wrong("a whole number that is not negative"))
    }
}

impl Read for u32 {
    fn read(node: &Node<'_>) -> Result<u32> {
        u64::read(node)?.try_into().map_err(|_| node.wrong("a smaller number"))
    }
}

impl Read for i64 {
    fn read(node: &Node<'_>) -> Result<i64> {
        node.value.as_i64().ok_or_else(|| node.wrong("a whole number"))
    }
}

impl Read for isize {
    fn read(node: &Node<'_>) -> Result<isize> {
        i64::read(node)?.try_into().map_err(|_| node.wrong("a smaller number"))
    }
}

impl Read for usize {
    fn read(node: &Node<'_>) -> Result<usize> {
        u64::read(node)?.try_into().map_err(|_| node.wrong("a smaller number"))
    }
}

impl Read for bool {
    fn read(node: &Node<'_>) -> Result<bool> {
        node.value.as_bool().ok_or_else(|| node.wrong("true or false"))
    }
}

impl Read for String {
    fn read(node: &Node<'_>) -> Result<String> {
        node.text("a string").map(String::from)
    }
}

impl<T: Read> Read for Option<T> {
    fn read(node: &Node<'_>) -> Result<Option<T>> {
        if node.value.is_null() { Ok(None) } else { T::read(node).map(Some) }
    }
}

impl<T: Read> Read for Vec<T> {
    fn read(node: &Node<'_>) -> Result<Vec<T>> {
        node.list()?.iter().map(T::read).collect()
    }
}

impl<A: Read, B: Read> Read for (A, B) {
    fn read(node: &Node<'_>) -> Result<(A, B)> {
        match &node.list()?[..] {
            [a, b] => Ok((a.read()?, b.read()?)),
            _ => Err(node.wrong("a pair")),
        }
    }
}
