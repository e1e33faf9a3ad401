//! The layout of a state: its fields, the memory layout of its arrays, and its leaves.

use core::hash::Hasher;
use std::hash::DefaultHasher;

use super::schema::{SchemaEntry, each_value};
use super::walk::FieldRole;
use super::{Entry, FactKind, Kind, State, StateWalk};
use crate::element::DType;
use crate::layout::{Shape, Strides};
use crate::tree::Structure;

#[derive(Clone, Debug, PartialEq)]
struct Row {
    field: String,
    leaf: Option<usize>,
    other_tree: bool,
    kind: Kind,
    dtype: Option<DType>,
    shape: Shape,
    strides: Strides,
}

impl Row {
    fn entry(&self, structure: &Structure) -> SchemaEntry {
        let leaf = self.leaf.filter(|_| !self.other_tree).and_then(|i| structure.leaves().get(i));
        let leaf = leaf.map(|leaf| leaf.path().into());
        SchemaEntry { field: self.field.clone(), leaf, kind: self.kind, dtype: self.dtype, shape: self.shape.to_vec() }
    }
}

/// The layout of a state, to check a replacement.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    rows: Vec<Row>,
    /// Hashes of decisions of `init` that are no fields.
    facts: Vec<(String, u64)>,
}

fn number(fact: &dyn Fn(&mut DefaultHasher)) -> u64 {
    let mut hasher = DefaultHasher::new();
    fact(&mut hasher);
    hasher.finish()
}

impl Layout {
    pub(crate) fn of<S: State>(state: &S) -> Layout {
        Layout::by(&|walk| state.walk(walk))
    }

    /// Returns the layout of a state's walk. Compiled once, as is the comparison.
    fn by<'a>(walk: &dyn Fn(&mut StateWalk<'a, '_>)) -> Layout {
        let (mut rows, mut facts) = (Vec::new(), Vec::new());
        let mut show = |field: &str, entry: Entry<'_>, FieldRole { other_tree, .. }: FieldRole| {
            each_value(entry, &mut |leaf, kind, dtype, shape, strides| {
                let (shape, strides) = (shape.into(), strides.into());
                rows.push(Row { field: field.into(), leaf, other_tree, kind, dtype, shape, strides });
            });
        };
        walk(&mut StateWalk::of_fields(&mut show));
        walk(&mut StateWalk::of_facts(&mut |path, fact, _| facts.push((path.into(), number(fact)))));
        Layout { rows, facts }
    }

    /// Compares a state with this layout, row by row, without building its own.
    ///
    /// # Errors
    ///
    /// If they differ: a message on the first difference.
    pub(crate) fn compare<S: State>(&self, state: &S, structure: &Structure) -> Result<(), String> {
        self.compare_by(&|walk| state.walk(walk), structure)
    }

    fn compare_by<'a>(&self, walk: &dyn Fn(&mut StateWalk<'a, '_>), structure: &Structure) -> Result<(), String> {
        let (mut ours, mut same) = (self.rows.iter(), true);
        let mut show = |field: &str, entry: Entry<'_>, _: FieldRole| {
            each_value(entry, &mut |leaf, kind, dtype, shape, strides| {
                let Some(row) = ours.next() else { return same = false };
                same &= (row.leaf, row.kind, row.dtype) == (leaf, kind, dtype);
                same &= row.field == field && row.shape[..] == *shape && row.strides[..] == *strides;
            });
        };
        walk(&mut StateWalk::of_fields(&mut show));
        if !same || ours.next().is_some() {
            return Err(self.difference(&Layout::by(walk), structure));
        }
        let (mut ours, mut other) = (self.facts.iter(), None);
        walk(&mut StateWalk::of_facts(&mut |path, fact, _| {
            if ours.next().is_none_or(|(name, ours)| name != path || *ours != number(fact)) {
                other.get_or_insert_with(|| path.to_owned());
            }
        }));
        match other {
            Some(path) => Err(format!("`{path}` is for other leaves, or was made by another transformation")),
            None => Ok(()),
        }
    }

    /// Returns the path of the first [meaning](StateWalk::meaning) in which two states differ.
    pub(crate) fn other_meaning<S: State>(ours: &S, theirs: &S) -> Option<String> {
        let [ours, theirs] = [ours, theirs].map(|state| Layout::meanings(&|walk| state.walk(walk)));
        ours.into_iter().zip(theirs).find(|(ours, theirs)| ours != theirs).map(|((path, _), _)| path)
    }

    fn meanings<'a>(walk: &dyn Fn(&mut StateWalk<'a, '_>)) -> Vec<(String, u64)> {
        let mut found = Vec::new();
        walk(&mut StateWalk::of_facts(&mut |path, fact, tells| {
            if tells == FactKind::Meaning {
                found.push((path.into(), number(fact)));
            }
        }));
        found
    }

    #[cold]
    fn difference(&self, other: &Layout, structure: &Structure) -> String {
        let mut pairs = self.rows.iter().zip(&other.rows);
        let Some((ours, theirs)) = pairs.find(|(ours, theirs)| ours != theirs) else {
            return format!("expected {} fields, found {}", self.rows.len(), other.rows.len());
        };
        let [entry, found] = [ours, theirs].map(|row| row.entry(structure));
        if entry == found {
            return format!("`{entry}` has another memory order; `OptState::replace` converts it");
        }
        format!("expected {entry}, found {found}")
    }
}
