//! How each type of argument is read.

use serde_json::{Value, json};

use super::error::{ConfigError, Result};
use super::node::{Args, Node, Read};
use super::registry::Member;
use crate::element::DType;
use crate::schedule::{Hyperparam, Schedule};
use crate::select::{Labels, Mask};
use crate::transform::{
    DimensionNumbers, InitStep, InitialGuess, Interpolation, LionMode, NsCoeffs, Preconditioning,
    WeightDimensionNumbers,
};
use crate::wrapper::{Boxed, EveryK, narrow};

impl Read for DType {
    fn read(node: &Node<'_>) -> Result<DType> {
        let name = node.text("a type: \"f16\", \"bf16\", \"f32\" or \"f64\"")?;
        let known = ["f16", "bf16", "f32", "f64"];
        let dtype = DType::from_name(name).ok_or_else(|| ConfigError::unknown(&node.place, "type", name, known))?;
        if dtype.is_supported() { Ok(dtype) } else { Err(node.wrong("f32 or f64, or the feature `half`")) }
    }

    fn schema() -> Value {
        json!({"enum": ["f16", "bf16", "f32", "f64"]})
    }

    fn example() -> Value {
        json!("f32")
    }
}

impl Read for Schedule {
    fn read(node: &Node<'_>) -> Result<Schedule> {
        super::schedules::read(node)
    }

    fn schema() -> Value {
        json!({"$ref": "#/$defs/schedule"})
    }

    fn example() -> Value {
        json!({"constant": {"value": 1.0}})
    }
}

/// A number, or `{"schedule": ..}`.
impl Read for Hyperparam {
    fn read(node: &Node<'_>) -> Result<Hyperparam> {
        match node.value {
            Value::Object(_) => Ok(schedule_argument(node)?.into()),
            _ => f64::read(node).map(Hyperparam::from).map_err(|_| node.wrong("a number or a schedule")),
        }
    }

    fn schema() -> Value {
        json!({"anyOf": [{"type": ["number", "string"]}, {"$ref": "#/$defs/scheduled"}]})
    }

    fn example() -> Value {
        json!(0.5)
    }
}

/// `{"schedule": ..}`.
fn schedule_argument(node: &Node<'_>) -> Result<Schedule> {
    match node.single("{\"schedule\": ..}")? {
        ("schedule", inside) => inside.read(),
        _ => Err(node.wrong("{\"schedule\": ..}")),
    }
}

/// An argument that must be a schedule.
pub(super) struct Scheduled(pub(super) Schedule);

impl Read for Scheduled {
    fn read(node: &Node<'_>) -> Result<Scheduled> {
        match node.single("{\"schedule\": ..}")? {
            ("schedule", _) => schedule_argument(node),
            _ => node.read(),
        }
        .map(Scheduled)
    }

    fn schema() -> Value {
        json!({"anyOf": [{"$ref": "#/$defs/scheduled"}, {"$ref": "#/$defs/schedule"}]})
    }

    fn example() -> Value {
        json!({"schedule": {"constant": {"value": 1.0}}})
    }
}

/// An argument of Optax that there is nothing for here: only what turns it off will do.
pub(super) struct Unused;

impl Read for Unused {
    fn read(node: &Node<'_>) -> Result<Unused> {
        let off = node.is_none() || node.value.as_bool() == Some(false);
        if off { Ok(Unused) } else { Err(node.wrong("null or false")) }
    }

    fn schema() -> Value {
        json!({"enum": [null, "none", false]})
    }
}

impl Read for InitialGuess {
    fn read(node: &Node<'_>) -> Result<InitialGuess> {
        node.choice(&[("one", InitialGuess::One), ("keep", InitialGuess::Keep)])
    }

    fn schema() -> Value {
        json!({"enum": ["one", "keep"]})
    }

    fn example() -> Value {
        json!("keep")
    }
}

impl Read for Interpolation {
    fn read(node: &Node<'_>) -> Result<Interpolation> {
        node.choice(&[("values", Interpolation::Values), ("slopes", Interpolation::Slopes)])
    }

    fn schema() -> Value {
        json!({"enum": ["values", "slopes"]})
    }

    fn example() -> Value {
        json!("values")
    }
}

impl Read for LionMode {
    fn read(node: &Node<'_>) -> Result<LionMode> {
        node.choice(&[("hard", LionMode::Hard), ("smooth", LionMode::Smooth), ("refined", LionMode::Refined)])
    }

    fn schema() -> Value {
        json!({"enum": ["hard", "smooth", "refined"]})
    }

    fn example() -> Value {
        json!("hard")
    }
}

const KINDS: [&str; 7] = ["by_path", "path", "paths", "min_ndim", "not", "and", "or"];

/// `null` takes every leaf: no mask is no restriction.
impl Read for Mask {
    fn read(node: &Node<'_>) -> Result<Mask> {
        const FORMS: &str = "null, true, false, or one of {\"by_path\": ..}, {\"path\": ..}, {\"paths\": [..]}, \
                             {\"min_ndim\": ..}, {\"not\": ..}, {\"and\": [..]}, {\"or\": [..]}";
        match node.value {
            _ if node.is_none() => return Ok(Mask::all()),
            Value::Bool(true) => return Ok(Mask::all()),
            Value::Bool(false) => return Ok(Mask::none()),
            _ => {}
        }
        let (name, inside) = node.single(FORMS)?;
        match name {
            "by_path" => {
                let each = |(path, node): (&str, Node<'_>)| Ok((String::from(path), node.read()?));
                Ok(Mask::tree(inside.entries()?.into_iter().map(each).collect::<Result<Vec<(_, bool)>>>()?))
            }
            "path" => Ok(Mask::path(inside.text("a pattern")?)),
            "paths" => Ok(Mask::paths(inside.read::<Vec<String>>()?)),
            "not" => inside.read::<Mask>().map(|mask| !mask),
            "and" => inside.read().map(|(a, b): (Mask, Mask)| a.and(b)),
            "or" => inside.read().map(|(a, b): (Mask, Mask)| a.or(b)),
            "min_ndim" => Ok(Mask::min_ndim(inside.read()?)),
            other => Err(ConfigError::unknown(&node.place, "kind of mask", other, KINDS)),
        }
    }

    fn schema() -> Value {
        json!({"$ref": "#/$defs/mask"})
    }

    fn example() -> Value {
        json!(null)
    }
}

/// From path (of a leaf or a subtree) to label; or the same under `by_path`, or a list of pairs of pattern and label under
/// `paths`, either with the label of the rest under `otherwise`.
impl Read for Labels {
    fn read(node: &Node<'_>) -> Result<Labels> {
        let map = node.object()?;
        let listed = map.get("paths").is_some_and(Value::is_array);
        if listed || map.get("by_path").is_some_and(Value::is_object) {
            let a = Args::new("labels", node.clone())?;
            let labels = match listed {
                true => Labels::paths(a.required::<Vec<(String, String)>>("paths")?),
                false => a.required("by_path")?,
            };
            let otherwise = a.or::<Option<String>>("otherwise", None)?;
            a.finish()?;
            return Ok(otherwise.into_iter().fold(labels, Labels::otherwise));
        }
        let each = |(path, node): (&str, Node<'_>)| Ok((String::from(path), node.read()?));
        Ok(Labels::tree(node.entries()?.into_iter().map(each).collect::<Result<Vec<(_, String)>>>()?))
    }

    fn schema() -> Value {
        json!({"$ref": "#/$defs/labels"})
    }

    fn example() -> Value {
        json!({"": "a"})
    }
}

impl Read for Member {
    fn read(node: &Node<'_>) -> Result<Member> {
        super::registry::transformation(node)
    }

    fn schema() -> Value {
        json!({"$ref": "#/$defs/transformation"})
    }

    fn example() -> Value {
        json!({"identity": {}})
    }
}

/// What decides how long the steps of L-BFGS are.
pub(super) enum Linesearch {
    /// What it has where nothing is said.
    Usual,
    /// This, or nothing.
    Given(Option<Member>),
}

impl Read for Linesearch {
    fn read(node: &Node<'_>) -> Result<Linesearch> {
        node.read().map(Linesearch::Given)
    }

    fn schema() -> Value {
        Option::<Member>::schema()
    }
}

/// A transformation that needs nothing besides gradients.
pub(super) struct Base(pub(super) Boxed);

impl Read for Base {
    fn read(node: &Node<'_>) -> Result<Base> {
        let narrowed = narrow(node.read::<Member>()?);
        narrowed.map(Base).map_err(|error| ConfigError::refused(&node.place, error))
    }
}

/// `[kind, number]`
impl Read for InitStep {
    fn read(node: &Node<'_>) -> Result<InitStep> {
        let (name, value) = node.read::<(String, f64)>()?;
        InitStep::from_name(&name, value).map_err(|error| ConfigError::refused(&node.place, error))
    }
}

/// One of what there can be a list of, or the list.
pub(super) struct OneOrMore<T>(pub(super) Vec<T>);

impl<T: Read> Read for OneOrMore<T> {
    fn read(node: &Node<'_>) -> Result<OneOrMore<T>> {
        Ok(OneOrMore(if node.value.is_array() { node.read()? } else { vec![node.read()?] }))
    }
}

/// The name of a preset, three numbers, or rows of three.
impl Read for NsCoeffs {
    fn read(node: &Node<'_>) -> Result<NsCoeffs> {
        if let Some(name) = node.value.as_str() {
            return NsCoeffs::preset(name).map_err(|error| ConfigError::refused(&node.place, error));
        }
        let rows = node.list()?;
        match rows.first().is_some_and(|row| row.value.is_array()) {
            true => Ok(rows.iter().map(three).collect::<Result<Vec<_>>>()?.into()),
            false => three(node).map(NsCoeffs::from),
        }
    }
}

fn three(node: &Node<'_>) -> Result<[f64; 3]> {
    node.read::<Vec<f64>>()?.try_into().map_err(|_| node.wrong("three numbers"))
}

impl Read for Preconditioning {
    fn read(node: &Node<'_>) -> Result<Preconditioning> {
        Preconditioning::from_name(node.text("a string")?).map_err(|error| ConfigError::refused(&node.place, error))
    }

    fn schema() -> Value {
        json!({"enum": ["frobenius", "spectral", "aol", "schatten"]})
    }

    fn example() -> Value {
        json!("frobenius")
    }
}

/// `null` takes the leaves with two axes; else `{"by_path": {path: null | {"reduction_axis", "output_axis"}}}`.
impl Read for WeightDimensionNumbers {
    fn read(node: &Node<'_>) -> Result<WeightDimensionNumbers> {
        if node.is_none() {
            return Ok(WeightDimensionNumbers::default());
        }
        let ("by_path", inside) = node.single("null or {\"by_path\": ..}")? else {
            return Err(node.wrong("null or {\"by_path\": ..}"));
        };
        let each = |(path, node): (&str, Node<'_>)| Ok((String::from(path), node.read()?));
        Ok(WeightDimensionNumbers::tree(inside.entries()?.into_iter().map(each).collect::<Result<Vec<_>>>()?))
    }
}

impl Read for DimensionNumbers {
    fn read(node: &Node<'_>) -> Result<DimensionNumbers> {
        let a = Args::new("dimension numbers", node.clone())?;
        let axes = |name| a.required::<OneOrMore<isize>>(name).map(|axes| axes.0);
        let numbers = DimensionNumbers::new(axes("reduction_axis")?, axes("output_axis")?);
        a.finish()?;
        Ok(numbers)
    }
}

/// A whole number, or a schedule.
impl Read for EveryK {
    fn read(node: &Node<'_>) -> Result<EveryK> {
        match node.value.as_u64() {
            Some(_) => Ok(node.read::<Hyperparam>()?.into()),
            None => schedule_argument(node).map(EveryK::from),
        }
    }

    fn schema() -> Value {
        json!({"anyOf": [{"type": "integer", "minimum": 1}, {"$ref": "#/$defs/scheduled"}]})
    }

    fn example() -> Value {
        json!(1)
    }
}
