//! The blocks of elements that share a second moment.

use crate::internal::recipe::Entries;
use crate::internal::state::subtree;
use crate::part::prelude::*;
use crate::recipe::{self, FromRecipe, Node, Recipe, ToRecipe};
use crate::tree::LeafSpec;

/// The partition of one leaf into blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Block {
    /// One block: the whole leaf.
    Leaf,
    /// One block per index along an axis; negative axes count from the end.
    Axis(isize),
    /// One block per group of neighbouring indices along an axis: the heads of an attention layer.
    Groups {
        /// The axis; negative ones count from the end.
        axis: isize,
        /// Number of groups; must divide the length of the axis.
        groups: usize,
    },
}

/// The [`Block`]s of the leaves at some paths, and of the leaves below them.
///
/// Leaves that no path names have one block per index of their last axis if they have two axes or more: the outputs of
/// a layer whose weights are `[in, out]`. For weights `[out, in]`, as in PyTorch, pass `Block::Axis(0)`. A leaf of
/// fewer axes is one block.
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::optimizer::adam_mini;
/// use gradchain::transform::{Block, Blocks};
///
/// let blocks = Blocks::tree([
///     ("embedding", Block::Axis(0)), // [token, model]
///     ("attention/query", Block::Groups { axis: 1, groups: 8 }), // [model, head·size]
/// ]);
/// let optimizer = adam_mini(1e-3).blocks(blocks);
/// # let _ = optimizer;
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Blocks(Option<Vec<(String, Block)>>);

/// Blocks in memory: equally long runs, which belong to the blocks in turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Runs {
    /// Elements per run.
    pub(super) len: usize,
    /// At least 1.
    pub(super) count: usize,
}

impl Blocks {
    /// Sets the blocks of each path.
    pub fn tree<P: Into<String>>(entries: impl IntoIterator<Item = (P, Block)>) -> Blocks {
        Blocks(Some(entries.into_iter().map(|(path, block)| (path.into(), block)).collect()))
    }

    fn block(&self, leaf: &LeafSpec) -> Block {
        let entry = self.0.iter().flatten().find(|(path, _)| subtree::holds(path, leaf.path()));
        match entry {
            Some((_, block)) => *block,
            None if leaf.ndim() >= 2 => Block::Axis(-1),
            None => Block::Leaf,
        }
    }

    /// Returns the blocks' axis and number of groups; none if the leaf is one block.
    fn axis(&self, leaf: &LeafSpec) -> Option<(usize, Option<usize>)> {
        let (axis, groups) = match self.block(leaf) {
            Block::Leaf => return None,
            Block::Axis(axis) => (axis, None),
            Block::Groups { axis, groups } => (axis, Some(groups)),
        };
        let axis = if axis < 0 { axis.checked_add_unsigned(leaf.ndim())? } else { axis };
        let axis = usize::try_from(axis).ok().filter(|axis| *axis < leaf.ndim())?;
        Some((axis, groups))
    }

    /// Returns the axis and the number of blocks, independent of the memory order.
    pub(super) fn along(&self, leaf: &LeafSpec) -> [usize; 2] {
        let axis = self.axis(leaf).map_or(0, |(axis, _)| axis);
        [axis, self.of(leaf).map_or(0, |runs| runs.count)]
    }

    /// Returns a leaf's blocks; none if they do not fit.
    pub(super) fn of(&self, leaf: &LeafSpec) -> Option<Runs> {
        if let Block::Leaf = self.block(leaf) {
            return Some(Runs { len: leaf.len(), count: 1 });
        }
        let (axis, groups) = self.axis(leaf)?;
        let length = leaf.shape()[axis];
        let groups = groups.unwrap_or(length.max(1));
        if groups == 0 || !length.is_multiple_of(groups) {
            return None;
        }
        // In a dense leaf the index along the axis advances every `stride` elements and wraps around.
        Some(Runs { len: leaf.strides()[axis].unsigned_abs() * (length / groups), count: groups })
    }

    /// Checks that paths name leaves and blocks fit.
    pub(super) fn check(&self, at: &InitContext<'_>, what: &str) -> Result<()> {
        let paths: Vec<&str> = self.0.iter().flatten().map(|(path, _)| path.as_str()).collect();
        subtree::assign(&paths, at.structure(), false, what)?;
        let leaves = at.structure().leaves().iter().zip(at.active());
        match leaves.filter(|(_, on)| **on).find(|(leaf, _)| self.of(leaf).is_none()) {
            None => Ok(()),
            Some((leaf, _)) => {
                let expected = "of an axis that the leaf has, with a length that is a multiple of the number of \
                                groups";
                Err(Error::argument(what, "blocks", expected, format!("{:?} for `{leaf}`", self.block(leaf))))
            }
        }
    }
}

impl ToRecipe for Block {
    fn to_recipe(&self) -> Recipe {
        match *self {
            Block::Leaf => Recipe::text("leaf"),
            Block::Axis(axis) => Recipe::map([("axis", axis.to_recipe())]),
            Block::Groups { axis, groups } => Recipe::map([("axis", axis.to_recipe()), ("groups", groups.to_recipe())]),
        }
    }
}

impl ToRecipe for Blocks {
    fn to_recipe(&self) -> Recipe {
        let Some(entries) = &self.0 else { return Recipe::Null };
        Recipe::map([("by_path", Recipe::map(entries.iter().map(|(path, block)| (&**path, block.to_recipe()))))])
    }
}

/// `null` gives each leaf the blocks that follow from its shape; else `{"by_path": {path: "leaf" | {"axis",
/// "groups"}}}`.
impl FromRecipe for Blocks {
    fn from_recipe(node: &Node<'_>) -> recipe::Result<Blocks> {
        if node.is_none() {
            return Ok(Blocks::default());
        }
        node.fields(&["by_path"])?.required("by_path").map(|Entries(blocks)| Blocks::tree::<String>(blocks))
    }

    fn schema() -> String {
        let one = r#"{"anyOf": [{"enum": ["leaf"]}, {"type": "object", "required": ["axis"], "additionalProperties": false,
                     "properties": {"axis": {"type": "integer"}, "groups": {"type": ["integer", "null", "string"]}}}]}"#;
        format!(
            r#"{{"anyOf": [{{"enum": [null, "none"]}}, {{"type": "object", "required": ["by_path"],
                "additionalProperties": false, "properties":
                {{"by_path": {{"type": "object", "additionalProperties": {one}}}}}}}]}}"#
        )
    }
}

impl FromRecipe for Block {
    fn from_recipe(node: &Node<'_>) -> recipe::Result<Block> {
        if let Recipe::Text(_) = node.value() {
            return node.choice(&[("leaf", Block::Leaf)]);
        }
        let fields = node.fields(&["axis", "groups"])?;
        let axis = fields.required("axis")?;
        Ok(fields.or("groups", None)?.map_or(Block::Axis(axis), |groups| Block::Groups { axis, groups }))
    }
}
