//! How each type of argument is read.

use serde_json::Value;

use super::error::{ConfigError, Result};
use super::node::{Args, Node, Read};
use super::registry::Member;
use crate::element::DType;
use crate::schedule::{Hyperparam, Schedule};
use crate::select::{Labels, Mask};
use crate::transform::{DimensionNumbers, InitStep, LionMode, NsCoeffs, Preconditioning, WeightDimensionNumbers};
use crate::wrapper::{Boxed, EveryK, narrow};

impl Read for DType {
    fn read(node: &Node<'_>) -> Result<DType> {
        let name = node.text("a type: \"f16\", \"bf16\", \"f32\" or \"f64\"")?;
        let known = ["f16", "bf16", "f32", "f64"];
        let dtype = DType::from_name(name).ok_or_else(|| ConfigError::unknown(&node.place, "type", name, known))?;
        if dtype.is_supported() { Ok(dtype) } else { Err(node.wrong("f32 or f64, or the feature `half`")) }
    }
}

impl Read for Schedule {
    fn read(node: &Node<'_>) -> Result<Schedule> {
        super::schedules::read(node)
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
        schedule_argument(node).map(Scheduled)
    }
}

/// An argument of Optax that there is nothing for here: only `null` will do.
pub(super) struct Unused;

impl Read for Unused {
    fn read(node: &Node<'_>) -> Result<Unused> {
        if node.value.is_null() { Ok(Unused) } else { Err(node.wrong("null")) }
    }
}

impl Read for LionMode {
    fn read(node: &Node<'_>) -> Result<LionMode> {
        node.choice(&[("hard", LionMode::Hard), ("smooth", LionMode::Smooth), ("refined", LionMode::Refined)])
    }
}

/// `null` takes every leaf: no mask is no restriction.
impl Read for Mask {
    fn read(node: &Node<'_>) -> Result<Mask> {
        const FORMS: &str = "null, true, false, {\"by_path\": ..}, {\"path\": ..} or {\"min_ndim\": ..}";
        match node.value {
            Value::Null | Value::Bool(true) => return Ok(Mask::all()),
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
            "min_ndim" => Ok(Mask::min_ndim(inside.read()?)),
            other => Err(ConfigError::unknown(&node.place, "kind of mask", other, ["by_path", "path", "min_ndim"])),
        }
    }
}

/// From path (of a leaf or a subtree) to label.
impl Read for Labels {
    fn read(node: &Node<'_>) -> Result<Labels> {
        let each = |(path, node): (&str, Node<'_>)| Ok((String::from(path), node.read()?));
        Ok(Labels::tree(node.entries()?.into_iter().map(each).collect::<Result<Vec<(_, String)>>>()?))
    }
}

impl Read for Member {
    fn read(node: &Node<'_>) -> Result<Member> {
        super::registry::transformation(node)
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
}

/// `null` takes the leaves with two axes; else `{"by_path": {path: null | {"reduction_axis", "output_axis"}}}`.
impl Read for WeightDimensionNumbers {
    fn read(node: &Node<'_>) -> Result<WeightDimensionNumbers> {
        if node.value.is_null() {
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
}
