//! How each type of argument is read.

use serde_json::{Value, json};

use super::error::{ConfigError, Result};
use super::node::{Args, Node, Read};
use crate::element::DType;
use crate::select::{Labels, Mask};

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

/// One of what there can be a list of, or the list.
pub(super) struct OneOrMore<T>(pub(super) Vec<T>);

impl<T: Read> Read for OneOrMore<T> {
    fn read(node: &Node<'_>) -> Result<OneOrMore<T>> {
        Ok(OneOrMore(if node.value.is_array() { node.read()? } else { vec![node.read()?] }))
    }
}
