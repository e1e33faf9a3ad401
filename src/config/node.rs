//! JSON values with the place where they stand.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use super::error::{ConfigError, Result};
use crate::needs::ValueAndGradFn;
use crate::schedule::Hyperparam;
use crate::wrapper::Boxed;

/// A transformation of any needs: what they are is known once it is built.
pub(super) type Member = Boxed<ValueAndGradFn>;

/// The same, with named arguments, which can be injected.
pub(super) type Named = crate::wrapper::Named<ValueAndGradFn>;

/// Who knows every name. A node has it with it, so that what holds other transformations can have them read, whatever
/// they are.
pub(super) trait Known: core::fmt::Debug + Sync {
    /// A transformation: `{name: arguments}`.
    fn transformation(&self, node: &Node<'_>) -> Result<Member>;

    /// A transformation with named arguments: the name of one at `node`, the arguments `inside`.
    fn named(&self, name: &str, node: &Node<'_>, inside: Node<'_>) -> Result<Named>;

    /// What the transformation of this name asks for.
    fn asked(&self, name: &str) -> Vec<Asked>;
}

/// A JSON value and its place.
#[derive(Clone, Debug)]
pub(super) struct Node<'a> {
    pub(super) place: String,
    pub(super) value: &'a Value,
    /// Writes down what is asked for, if it is only to find that out.
    probe: Option<&'a Probe>,
    pub(super) known: &'static dyn Known,
}

/// The arguments that something asks for: for the JSON schema.
#[derive(Debug, Default)]
pub(super) struct Probe(RefCell<Vec<Asked>>);

/// An argument that was asked for.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) name: &'static str,
    pub(super) required: bool,
    pub(super) schema: Value,
}

impl Probe {
    /// Everything that was asked for, once each.
    pub(super) fn into_asked(self) -> Vec<Asked> {
        self.0.into_inner()
    }

    fn note(&self, name: &'static str, required: bool, schema: Value) {
        let mut asked = self.0.borrow_mut();
        match asked.iter_mut().find(|asked| asked.name == name) {
            // Asked for again, now in a form that says more.
            Some(known) if known.schema == Value::Bool(true) => known.schema = schema,
            Some(_) => {}
            None => asked.push(Asked { name, required, schema }),
        }
    }
}

/// What a probe reads from.
static NOTHING: Value = Value::Null;

impl<'a> Node<'a> {
    pub(super) fn root(value: &'a Value, known: &'static dyn Known) -> Node<'a> {
        Node { place: "$".into(), value, probe: None, known }
    }

    /// A node that there is nothing at, to find out what is asked for.
    pub(super) fn probe(probe: &'a Probe, known: &'static dyn Known) -> Node<'a> {
        Node { place: "$".into(), value: &NOTHING, probe: Some(probe), known }
    }

    /// A part of it.
    fn inside<'b>(&self, place: String, value: &'b Value) -> Node<'b> {
        Node { place, value, probe: None, known: self.known }
    }

    pub(super) fn wrong(&self, expected: &str) -> ConfigError {
        ConfigError::wrong(&self.place, expected, self.value)
    }

    pub(super) fn object(&self) -> Result<&'a Map<String, Value>> {
        self.value.as_object().ok_or_else(|| self.wrong("an object"))
    }

    /// The entries of an object.
    pub(super) fn entries(&self) -> Result<Vec<(&'a str, Node<'a>)>> {
        let inside = |(key, value): (&'a String, _)| (&**key, self.inside(format!("{}.{key}", self.place), value));
        Ok(self.object()?.iter().map(inside).collect())
    }

    /// The name and the value of an object of one entry.
    pub(super) fn single(&self, expected: &str) -> Result<(&'a str, Node<'a>)> {
        match <[_; 1]>::try_from(self.entries().map_err(|_| self.wrong(expected))?) {
            Ok([entry]) => Ok(entry),
            Err(_) => Err(self.wrong(expected)),
        }
    }

    pub(super) fn is_probe(&self) -> bool {
        self.probe.is_some()
    }

    /// Whether it says that there is nothing: `null`, or `"none"` where there is no null, as in TOML.
    pub(super) fn is_none(&self) -> bool {
        self.value.is_null() || self.value == "none"
    }

    pub(super) fn list(&self) -> Result<Vec<Node<'a>>> {
        let values = self.value.as_array().ok_or_else(|| self.wrong("a list"))?;
        let inside = |(i, value)| self.inside(format!("{}[{i}]", self.place), value);
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

    /// The JSON schema of what can be read; `true` is anything.
    fn schema() -> Value {
        Value::Bool(true)
    }

    /// Something that can be read.
    fn example() -> Value {
        Value::Null
    }
}

/// An empty object.
static EMPTY: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);

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
        let map = if node.probe.is_some() { &*EMPTY } else { node.object()? };
        Ok(Args { name, node, map, asked: RefCell::default() })
    }

    /// The argument of this name, if it is given.
    pub(super) fn get(&self, name: &'static str) -> Option<Node<'a>> {
        self.note(name, false, Value::Bool(true));
        self.place(name)
    }

    fn place(&self, name: &'static str) -> Option<Node<'a>> {
        self.asked.borrow_mut().insert(name);
        self.map.get(name).map(|value| self.node.inside(format!("{}.{name}", self.node.place), value))
    }

    fn note(&self, name: &'static str, required: bool, schema: Value) {
        if let Some(probe) = self.node.probe {
            probe.note(name, required, schema);
        }
    }

    /// Whether this is only to find out what is asked for.
    pub(super) fn is_probe(&self) -> bool {
        self.node.probe.is_some()
    }

    /// An argument that is a number or a schedule, which the builder has under the same name.
    pub(super) fn hyperparam(&self, name: &'static str, default: &Hyperparam) -> Option<Node<'a>> {
        let mut schema = Hyperparam::schema();
        if let (Hyperparam::Number(default), Value::Object(schema)) = (default, &mut schema) {
            schema.insert("default".into(), (*default).into());
        }
        self.note(name, false, schema);
        self.place(name)
    }

    pub(super) fn required<T: Read>(&self, name: &'static str) -> Result<T> {
        let missing = || ConfigError::wrong(&self.node.place, format!("an argument `{name}`"), "none");
        self.note(name, true, T::schema());
        if self.is_probe() {
            return T::read(&Node::root(&T::example(), self.node.known));
        }
        self.get(name).ok_or_else(missing)?.read()
    }

    pub(super) fn or<T: Read>(&self, name: &'static str, default: T) -> Result<T> {
        self.note(name, false, T::schema());
        self.place(name).map_or(Ok(default), |node| node.read())
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

    fn schema() -> Value {
        json!({"type": ["number", "string"]})
    }

    fn example() -> Value {
        json!(0.5)
    }
}

impl Read for u64 {
    fn read(node: &Node<'_>) -> Result<u64> {
        let written = || node.value.as_str().and_then(|text| text.parse().ok());
        node.value.as_u64().or_else(written).ok_or_else(|| node.wrong("a whole number that is not negative"))
    }

    fn schema() -> Value {
        json!({"type": "integer", "minimum": 0})
    }

    fn example() -> Value {
        json!(1)
    }
}

impl Read for u32 {
    fn read(node: &Node<'_>) -> Result<u32> {
        u64::read(node)?.try_into().map_err(|_| node.wrong("a smaller number"))
    }

    fn schema() -> Value {
        json!({"type": "integer", "minimum": 0})
    }

    fn example() -> Value {
        json!(1)
    }
}

impl Read for i64 {
    fn read(node: &Node<'_>) -> Result<i64> {
        node.value.as_i64().ok_or_else(|| node.wrong("a whole number"))
    }

    fn schema() -> Value {
        json!({"type": "integer"})
    }

    fn example() -> Value {
        json!(1)
    }
}

impl Read for isize {
    fn read(node: &Node<'_>) -> Result<isize> {
        i64::read(node)?.try_into().map_err(|_| node.wrong("a smaller number"))
    }

    fn schema() -> Value {
        json!({"type": "integer"})
    }

    fn example() -> Value {
        json!(1)
    }
}

impl Read for usize {
    fn read(node: &Node<'_>) -> Result<usize> {
        u64::read(node)?.try_into().map_err(|_| node.wrong("a smaller number"))
    }

    fn schema() -> Value {
        json!({"type": "integer", "minimum": 0})
    }

    fn example() -> Value {
        json!(1)
    }
}

impl Read for bool {
    fn read(node: &Node<'_>) -> Result<bool> {
        node.value.as_bool().ok_or_else(|| node.wrong("true or false"))
    }

    fn schema() -> Value {
        json!({"type": "boolean"})
    }

    fn example() -> Value {
        json!(false)
    }
}

impl Read for String {
    fn read(node: &Node<'_>) -> Result<String> {
        node.text("a string").map(String::from)
    }

    fn schema() -> Value {
        json!({"type": "string"})
    }

    fn example() -> Value {
        json!("")
    }
}

impl<T: Read> Read for Option<T> {
    fn read(node: &Node<'_>) -> Result<Option<T>> {
        if node.is_none() { Ok(None) } else { T::read(node).map(Some) }
    }

    fn schema() -> Value {
        json!({"anyOf": [{"enum": [null, "none"]}, T::schema()]})
    }
}

impl<T: Read> Read for Vec<T> {
    fn read(node: &Node<'_>) -> Result<Vec<T>> {
        node.list()?.iter().map(T::read).collect()
    }

    fn schema() -> Value {
        json!({"type": "array", "items": T::schema()})
    }

    fn example() -> Value {
        json!([])
    }
}

impl<A: Read, B: Read> Read for (A, B) {
    fn read(node: &Node<'_>) -> Result<(A, B)> {
        match &node.list()?[..] {
            [a, b] => Ok((a.read()?, b.read()?)),
            _ => Err(node.wrong("a pair")),
        }
    }

    fn schema() -> Value {
        json!({"type": "array", "prefixItems": [A::schema(), B::schema()], "minItems": 2, "maxItems": 2})
    }

    fn example() -> Value {
        json!([A::example(), B::example()])
    }
}
