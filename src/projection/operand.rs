use core::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::arguments::CheckRange;
use crate::internal::numeric::{Cursor, dense_strides};
use crate::internal::recipe::{Entries, OneOrMore};
use crate::internal::state::leaves;
use crate::range::Range;
use crate::recipe::{self, ConfigError, FromRecipe, Node, Recipe, ToRecipe};
use crate::schedule::{Hyperparam, Schedule};
use crate::tree::{Difference, LeafSpec, Slices, Structure, Tree};
use crate::{Error, Result};

/// An argument of a set: a number for all elements, or a tree with a number for each.
///
/// Functions take `impl Into<Operand>`: an `f64`, a schedule, or a reference to a tree, whose values are copied as
/// `f64`.
///
/// ```
/// use gradchain::projection::box_set;
///
/// box_set(0.0, 1.0);
/// box_set(0.0, &(0.5_f32, vec![1.0_f32, 2.0]));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Operand {
    /// A number for all elements.
    Number(Hyperparam),
    /// A number for each element.
    Tree(TreeValues),
}

impl Operand {
    /// Returns the number at a count, unless it is a tree.
    pub(super) fn number(&self, count: u64) -> Option<f64> {
        if let Operand::Number(number) = self { Some(number.at(count)) } else { None }
    }

    /// Returns a number that is the same at every step.
    pub(crate) fn fixed(&self) -> Option<f64> {
        if let Operand::Number(Hyperparam::Number(number)) = self { Some(*number) } else { None }
    }

    pub(crate) fn tree(&self) -> Option<&TreeValues> {
        if let Operand::Tree(tree) = self { Some(tree) } else { None }
    }
}

impl Operand {
    /// Returns a leaf's values in row-major order, without schedules; NaN for missing ones.
    #[cfg(feature = "minimize")]
    pub(crate) fn of_leaf(&self, leaf: &LeafSpec) -> Vec<f64> {
        let values = match self {
            Operand::Number(_) => Values::One(self.fixed().unwrap_or(f64::NAN)),
            Operand::Tree(tree) => tree.row_major(leaf),
        };
        (0..leaf.len()).map(|i| values.at(i)).collect()
    }
}

impl CheckRange for Operand {
    fn check_range(&self, function: &str, argument: &str, range: Range) -> Result<()> {
        let tree = match self {
            Operand::Number(number) => return number.check_range(function, argument, range),
            Operand::Tree(tree) => tree,
        };
        match tree.find(|x| !(range.contains)(x)) {
            Some((path, i, x)) => Err(Error::argument(function, argument, range.text, format!("{x} at {path}[{i}]"))),
            None => Ok(()),
        }
    }
}

impl<T: Tree + ?Sized> From<&T> for Operand {
    fn from(tree: &T) -> Operand {
        Operand::Tree(TreeValues::of(tree))
    }
}

impl From<f64> for Operand {
    fn from(number: f64) -> Operand {
        Operand::Number(number.into())
    }
}

impl From<Hyperparam> for Operand {
    fn from(number: Hyperparam) -> Operand {
        Operand::Number(number)
    }
}

impl From<Schedule> for Operand {
    fn from(schedule: Schedule) -> Operand {
        Operand::Number(schedule.into())
    }
}

macro_rules! schedules {
    ($($Kind:ident),* $(,)?) => {$(
        impl From<crate::schedule::$Kind> for Operand {
            fn from(kind: crate::schedule::$Kind) -> Operand {
                Hyperparam::from(kind).into()
            }
        }
    )*};
}
crate::internal::recipe::each_kind!(schedules);

impl From<TreeValues> for Operand {
    fn from(tree: TreeValues) -> Operand {
        Operand::Tree(tree)
    }
}

/// The copied values of a tree: one array of `f64` for each path. Clones share them.
#[derive(Clone, Debug)]
pub struct TreeValues(Arc<Copied>);

/// Compares shared values by pointer first.
impl PartialEq for TreeValues {
    fn eq(&self, other: &TreeValues) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

impl Hash for TreeValues {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.0.structure.paths().for_each(|path| path.hash(hasher));
        self.0.leaves.iter().flatten().for_each(|x| x.to_bits().hash(hasher));
    }
}

#[derive(Debug, PartialEq)]
struct Copied {
    structure: Structure,
    /// In row-major order.
    leaves: Vec<Vec<f64>>,
}

impl TreeValues {
    /// Copies the values of a tree.
    pub fn of<T: Tree + ?Sized>(tree: &T) -> TreeValues {
        let (structure, leaves) = (Structure::observed(tree), leaves(tree));
        TreeValues(Arc::new(Copied { structure, leaves: leaves.iter().map(|leaf| leaf.to_f64()).collect() }))
    }

    /// Returns the leaves.
    pub fn structure(&self) -> &Structure {
        &self.0.structure
    }

    /// Returns the values of the leaf at a path, in row-major order.
    pub fn get(&self, path: &str) -> Option<&[f64]> {
        Some(&self.0.leaves[self.0.structure.index_of(path)?])
    }

    fn find(&self, found: impl Fn(f64) -> bool) -> Option<(&str, usize, f64)> {
        self.0.structure.paths().zip(&self.0.leaves).find_map(|(path, values)| {
            let i = values.iter().position(|x| found(*x))?;
            Some((path, i, values[i]))
        })
    }

    /// Fails unless a tree has values of the active leaves, and of known ones only. A leaf without axes has one value
    /// for all elements.
    pub(crate) fn fit(&self, function: &str, argument: &str, structure: &Structure, active: &[bool]) -> Result<()> {
        let ours = &self.0.structure;
        let mut differences = Vec::new();
        for (leaf, _) in structure.leaves().iter().zip(active).filter(|(_, on)| **on) {
            match ours.index_of(leaf.path()).map(|i| &ours.leaves()[i]) {
                None => differences.push(Difference::Missing { expected: leaf.clone() }),
                Some(found) if found.shape() != leaf.shape() && found.ndim() > 0 => {
                    let (path, expected) = (leaf.path().into(), leaf.shape().into());
                    differences.push(Difference::Shape { path, expected, found: found.shape().into() });
                }
                Some(_) => {}
            }
        }
        let unexpected = ours.leaves().iter().filter(|leaf| structure.index_of(leaf.path()).is_none());
        differences.extend(unexpected.map(|leaf| Difference::Unexpected { found: leaf.clone() }));
        if differences.is_empty() {
            return Ok(());
        }
        Err(Error::structure(format!("{function}: argument `{argument}` does not fit the tree"), differences))
    }

    /// Returns a leaf's values in row-major order.
    pub(super) fn row_major(&self, leaf: &LeafSpec) -> Values {
        match (self.get(leaf.path()), self.0.structure.index_of(leaf.path())) {
            (Some([one]), Some(i)) if self.0.structure.leaves()[i].ndim() == 0 => Values::One(*one),
            (values, _) => Values::Each(values.unwrap_or_default().into()),
        }
    }

    /// Returns a leaf's values in the memory order of its state.
    pub(super) fn in_memory_order(&self, leaf: &LeafSpec) -> Values {
        let Values::Each(values) = self.row_major(leaf) else { return self.row_major(leaf) };
        let (mut ordered, mut next) = (values.clone(), values.iter());
        for run in Cursor::new(leaf.shape(), &dense_strides(leaf.shape()), leaf.strides(), 0).take(values.len()) {
            for i in 0..run.len as isize {
                let at = (run.offset + i * run.stride) as usize;
                next.next().into_iter().for_each(|value| ordered[at] = *value);
            }
        }
        Values::Each(ordered)
    }
}

/// Writes `{"tree": {path: {"dtype", "shape", "data"}}}`.
impl ToRecipe for TreeValues {
    fn to_recipe(&self) -> Recipe {
        let leaf = |(spec, values): (&LeafSpec, &Vec<f64>)| {
            let parts =
                [("dtype", "f64".to_recipe()), ("shape", spec.shape().to_recipe()), ("data", values.to_recipe())];
            (String::from(spec.path()), Recipe::map(parts))
        };
        let leaves = self.0.structure.leaves().iter().zip(&self.0.leaves).map(leaf).collect();
        Recipe::map([("tree", Recipe::Map(leaves))])
    }
}

impl ToRecipe for Operand {
    fn to_recipe(&self) -> Recipe {
        match self {
            Operand::Number(number) => number.to_recipe(),
            Operand::Tree(tree) => tree.to_recipe(),
        }
    }
}

/// Reads a number, `{"schedule": ..}`, or `{"tree": {path: leaf}}`.
///
/// Leaves are `{"shape": [..], "data": [..]}`, in row-major order.
impl FromRecipe for Operand {
    fn from_recipe(node: &Node<'_>) -> recipe::Result<Operand> {
        if let Ok(("tree", inside)) = node.single("") {
            let Entries(leaves) = inside.read::<Entries<Leaf>>()?;
            let mut tree = Slices::new();
            for (path, Leaf { shape, data }) in &leaves {
                tree = tree.with(&**path, data, shape).map_err(|e| ConfigError::refused(inside.place(), e))?;
            }
            return Ok(Operand::from(&tree));
        }
        match node.value() {
            Recipe::Map(_) | Recipe::Integer(_) | Recipe::Number(_) | Recipe::Text(_) => {
                node.read().map(Operand::Number)
            }
            _ => Err(node.wrong("a number, a schedule or a tree")),
        }
    }

    fn schema() -> String {
        let number = f64::schema();
        let leaf = format!(
            r#"{{"type": "object", "required": ["shape", "data"], "additionalProperties": false, "properties": {{
                "dtype": {{"enum": [null, "none", "f16", "bf16", "f32", "f64"]}},
                "shape": {{"type": "array", "items": {{"type": "integer", "minimum": 0}}}},
                "data": {{"anyOf": [{number}, {{"type": "array", "items": {number}}}]}}}}}}"#
        );
        let leaves = format!(r#"{{"type": "object", "additionalProperties": {{"anyOf": [{number}, {leaf}]}}}}"#);
        let tree = format!(
            r#"{{"type": "object", "required": ["tree"], "additionalProperties": false, "properties": {{"tree": {leaves}}}}}"#
        );
        format!(r#"{{"anyOf": [{}, {tree}]}}"#, Hyperparam::schema())
    }

    fn is_missing(&self) -> bool {
        matches!(self, Operand::Number(number) if FromRecipe::is_missing(number))
    }
}

struct Leaf {
    shape: Vec<usize>,
    data: Vec<f64>,
}

impl FromRecipe for Leaf {
    fn from_recipe(node: &Node<'_>) -> recipe::Result<Leaf> {
        if node.value().as_number().is_some() {
            return Ok(Leaf { shape: Vec::new(), data: vec![node.read()?] });
        }
        let fields = node.fields(&["dtype", "shape", "data"])?;
        fields.or::<Option<crate::DType>>("dtype", None)?;
        Ok(Leaf { shape: fields.required("shape")?, data: fields.required::<OneOrMore<f64>>("data")?.0 })
    }
}

#[derive(Clone, Debug)]
pub(super) enum Values {
    One(f64),
    Each(Vec<f64>),
}

impl Values {
    pub(super) fn at(&self, i: usize) -> f64 {
        match self {
            Values::One(value) => *value,
            Values::Each(values) => values[i],
        }
    }

    /// Returns the values of a chunk; `scratch` has its length.
    pub(super) fn row_major<'a>(&'a self, start: usize, scratch: &'a mut [f64]) -> &'a [f64] {
        match self {
            Values::One(value) => Values::fill(*value, scratch),
            Values::Each(values) => &values[start..][..scratch.len()],
        }
    }

    pub(super) fn fill(value: f64, scratch: &mut [f64]) -> &[f64] {
        scratch.fill(value);
        scratch
    }
}
