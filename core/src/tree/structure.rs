//! The structure of a tree without its values, and differences between structures.

use core::cell::RefCell;
use core::fmt;
use core::ops::Range;
use std::collections::{HashMap, HashSet};

use super::{Layout, LeafRef, Tree, Walk};
use crate::element::DType;
use crate::error::{Error, Result};
use crate::layout::{BufferSpec, Difference, LeafSpec};

/// The leaves of a tree without their values: paths, types, shapes, in order.
#[derive(Clone, Debug, Default, PartialEq, Hash)]
pub struct Structure {
    leaves: Vec<LeafSpec>,
}

impl Structure {
    /// Returns the structure of a tree.
    ///
    /// # Errors
    ///
    /// Fails if two leaves have the same path (a map with a key that contains a `/` can cause that).
    pub fn of<T: Tree + ?Sized>(tree: &T) -> Result<Structure> {
        Structure::observed(tree).unambiguous()
    }

    /// Returns this structure; fails if two leaves have the same path.
    pub(crate) fn unambiguous(self) -> Result<Structure> {
        let mut seen = HashSet::new();
        let twice = self.leaves.iter().filter(|l| !seen.insert(l.path()));
        let twice: Vec<_> = twice.map(|l| Difference::Duplicate { path: l.path().into() }).collect();
        if twice.is_empty() { Ok(self) } else { Err(Error::structure("the tree is ambiguous", twice)) }
    }

    /// Returns a structure of row-major leaves.
    #[cfg(feature = "serde")]
    #[doc(hidden)]
    pub fn from_parts<'a>(leaves: impl Iterator<Item = (&'a str, DType, &'a [usize])>) -> Structure {
        Structure { leaves: leaves.map(|(path, dtype, shape)| LeafSpec::new(path, dtype, shape)).collect() }
    }

    /// Returns these leaves, whose paths must differ.
    #[doc(hidden)]
    pub fn from_leaves(leaves: Vec<LeafSpec>) -> Structure {
        Structure { leaves }
    }

    /// Returns these leaves, restricted to this process's elements, in memory order.
    pub(crate) fn only(&self, here: &[Range<usize>]) -> Structure {
        Structure { leaves: self.leaves.iter().zip(here).map(|(leaf, here)| leaf.only(here.clone())).collect() }
    }

    /// Returns these leaves, then buffers, for masks and paths; the buffers' dtypes do not matter.
    pub(crate) fn with_buffers(&self, buffers: &[BufferSpec]) -> Structure {
        let buffers = buffers.iter().map(|buffer| LeafSpec::new(buffer.path(), DType::F32, buffer.shape()));
        Structure { leaves: self.leaves.iter().cloned().chain(buffers).collect() }
    }

    /// Returns these leaves with an additional first axis.
    pub(crate) fn batched(&self, len: usize) -> Structure {
        Structure { leaves: self.leaves.iter().map(|leaf| leaf.batched(len)).collect() }
    }

    /// Returns one leaf with one axis, at the root.
    pub(crate) fn flat(dtype: DType, len: usize) -> Structure {
        Structure { leaves: vec![LeafSpec::new("", dtype, [len])] }
    }

    #[doc(hidden)]
    pub fn observed<T: Tree + ?Sized>(tree: &T) -> Structure {
        Structure::by(&|walk| tree.walk(walk))
    }

    /// Returns the structure of a tree's walk. Compiled once, not for every tree.
    pub(crate) fn by<'a>(tree: &dyn Fn(&mut Walk<'a, '_>)) -> Structure {
        let (mut leaves, told) = (Vec::new(), RefCell::new(Vec::<(String, Layout)>::new()));
        let mut each = |path: &str, leaf: LeafRef<'_>| {
            let mut told = told.borrow_mut();
            while told.last().is_some_and(|(above, _)| !holds(above, path)) {
                told.pop();
            }
            let layout = told.last().map_or(Layout::default(), |(_, layout)| *layout);
            leaves.push(spec(path, &leaf).stored_as(layout));
        };
        let mut tell = |path: &str, layout| told.borrow_mut().push((path.into(), layout));
        tree(&mut Walk::of_layouts(&mut String::new(), &mut each, &mut tell));
        Structure { leaves }
    }

    /// Returns the leaves, in order.
    pub fn leaves(&self) -> &[LeafSpec] {
        &self.leaves
    }

    /// Returns the number of leaves.
    pub fn len(&self) -> usize {
        self.leaves.len()
    }

    /// Returns whether the tree has no leaves.
    pub fn is_empty(&self) -> bool {
        self.leaves.is_empty()
    }

    /// Returns the total number of elements.
    pub fn elements(&self) -> usize {
        self.leaves.iter().map(LeafSpec::len).sum()
    }

    /// Iterates over the paths, in order.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.leaves.iter().map(LeafSpec::path)
    }

    /// Returns the index of the leaf at a path.
    pub fn index_of(&self, path: &str) -> Option<usize> {
        self.leaves.iter().position(|l| l.path() == path)
    }

    pub(crate) fn numbers(&self) -> HashMap<&str, usize> {
        self.paths().enumerate().map(|(number, path)| (path, number)).collect()
    }

    /// Returns a hash of paths, types and shapes in order, the same on every CPU and in every version of this crate.
    ///
    /// It is the FNV-1a hash of their text. Memory order does not matter.
    pub fn fingerprint(&self) -> u64 {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        let mut add = |text: &str| {
            for byte in text.bytes().chain([0]) {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        };
        for leaf in &self.leaves {
            add(leaf.path());
            add(leaf.dtype().name());
            add(&format!("{:?}", leaf.shape()));
        }
        hash
    }

    /// Returns every leaf in which a tree differs from this structure: missing, unexpected, of another shape or type,
    /// or out of order. Empty if they agree.
    pub fn differences<T: Tree + ?Sized>(&self, tree: &T) -> Vec<Difference> {
        self.compare(&Structure::observed(tree), |ours, theirs| ours == theirs)
    }

    /// As `differences`, and compares memory orders too.
    pub(crate) fn differences_in_memory(&self, other: &Structure) -> Vec<Difference> {
        let mut found = self.compare(other, |ours, theirs| ours == theirs);
        let numbers = other.numbers();
        let pairs = self.leaves.iter().filter_map(|ours| Some((ours, &other.leaves[*numbers.get(ours.path())?])));
        found.extend(
            pairs.filter(|(ours, theirs)| ours.shape() == theirs.shape() && ours.strides() != theirs.strides()).map(
                |(ours, theirs)| Difference::MemoryOrder {
                    path: ours.path().into(),
                    expected: ours.strides().to_vec(),
                    found: theirs.strides().to_vec(),
                },
            ),
        );
        found
    }

    /// As `differences`, with dtypes that `fits(ours, theirs)` accepts.
    #[doc(hidden)]
    pub fn compare(&self, other: &Structure, fits: fn(DType, DType) -> bool) -> Vec<Difference> {
        let mut found = Vec::new();
        let [own_numbers, numbers] = [self.numbers(), other.numbers()];
        for ours in &self.leaves {
            let Some(theirs) = numbers.get(ours.path()).map(|number| &other.leaves[*number]) else {
                found.push(Difference::Missing { expected: ours.clone() });
                continue;
            };
            if ours.shape() != theirs.shape() {
                let (path, expected) = (ours.path().into(), ours.shape().into());
                found.push(Difference::Shape { path, expected, found: theirs.shape().into() });
            }
            if !fits(ours.dtype(), theirs.dtype()) {
                found.push(Difference::DType {
                    path: ours.path().into(),
                    expected: ours.dtype(),
                    found: theirs.dtype(),
                });
            }
        }
        let unexpected = other.leaves.iter().filter(|l| !own_numbers.contains_key(l.path()));
        found.extend(unexpected.map(|l| Difference::Unexpected { found: l.clone() }));
        if found.is_empty() && !self.paths().eq(other.paths()) {
            found.push(self.order(other));
        }
        found
    }

    /// Returns the difference between two orders of the same paths.
    pub(crate) fn order(&self, other: &Structure) -> Difference {
        let [expected, found] = [self, other].map(|s| s.paths().map(String::from).collect());
        Difference::Order { expected, found }
    }
}

impl fmt::Display for Structure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.leaves.iter().try_for_each(|leaf| writeln!(f, "{leaf}"))
    }
}

/// Returns whether a path is a leaf's or above it.
pub fn holds(above: &str, leaf: &str) -> bool {
    above.is_empty() || leaf.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn spec(path: &str, leaf: &LeafRef<'_>) -> LeafSpec {
    LeafSpec::with_strides(path, leaf.dtype(), leaf.shape(), &leaf.parts.strides)
}
