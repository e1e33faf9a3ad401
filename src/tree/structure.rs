//! What a tree looks like without its values, and how two of them differ.

use core::fmt;
use std::collections::HashSet;
use std::sync::Arc;

use super::layout::matching_strides;
use super::leaf::Strides;
use super::{Cursor, LeafRef, Tree, Walk, dense_strides};
use crate::element::DType;
use crate::error::{Error, Result};

/// Path, type, shape and memory order of one leaf.
#[derive(Clone, Debug, PartialEq)]
pub struct LeafSpec {
    path: Arc<str>,
    dtype: DType,
    shape: Vec<usize>,
    strides: Strides,
}

impl LeafSpec {
    fn of(path: &str, leaf: &LeafRef<'_>) -> LeafSpec {
        let strides = matching_strides(leaf.shape(), &leaf.parts.strides);
        LeafSpec { path: path.into(), dtype: leaf.dtype(), shape: leaf.shape().into(), strides }
    }

    /// A leaf of this one's path that holds something else: of another type, and of its shape or one of its own.
    pub(crate) fn standing_for(&self, dtype: DType, shape: Option<Vec<usize>>) -> LeafSpec {
        let path = self.path.clone();
        match shape {
            Some(shape) => LeafSpec { path, dtype, strides: super::dense_strides(&shape), shape },
            None => LeafSpec { path, dtype, shape: self.shape.clone(), strides: self.strides.clone() },
        }
    }

    /// The path in the tree, such as `layers/0/weight`.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The type of the elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The axis lengths.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// How many elements.
    #[allow(clippy::len_without_is_empty, reason = "a leaf is not a collection")]
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// How many axes.
    pub fn ndim(&self) -> usize {
        self.shape.len()
    }

    /// Shows, in row-major order, where each element lies in the state arrays for this leaf.
    pub(crate) fn each_place(&self, mut place: impl FnMut(usize)) {
        let order = dense_strides(&self.shape);
        for run in Cursor::new(&self.shape, &order, &self.strides, 0).take(self.len()) {
            (0..run.len as isize).for_each(|i| place((run.offset + i * run.stride) as usize));
        }
    }

    /// The strides of state arrays for this leaf: dense, in the parameter's own memory order.
    pub(crate) fn strides(&self) -> &[isize] {
        &self.strides
    }
}

impl fmt::Display for LeafSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} {:?}", Named(&self.path), self.dtype, self.shape)
    }
}

/// A path as it is shown in messages; the path of a bare array is empty.
struct Named<'a>(&'a str);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "(root)" } else { self.0 })
    }
}

/// The leaves of a tree without their values: paths, types, shapes, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Structure {
    leaves: Vec<LeafSpec>,
}

impl Structure {
    /// What a tree looks like.
    ///
    /// # Errors
    ///
    /// If two leaves have the same path (a map with a key that holds a `/` can do that).
    pub fn of<T: Tree + ?Sized>(tree: &T) -> Result<Structure> {
        let structure = Structure::observed(tree);
        let mut seen = HashSet::new();
        let twice = structure.leaves.iter().filter(|l| !seen.insert(l.path()));
        let twice: Vec<_> = twice.map(|l| Difference::Duplicate { path: l.path().into() }).collect();
        if twice.is_empty() { Ok(structure) } else { Err(Error::structure("the tree is ambiguous", twice)) }
    }

    /// Leaves of these paths, types and shapes, in row-major order.
    #[cfg(feature = "serde")]
    pub(crate) fn from_parts<'a>(leaves: impl Iterator<Item = (&'a str, DType, &'a [usize])>) -> Structure {
        let leaf = |(path, dtype, shape): (&str, DType, &[usize])| LeafSpec {
            path: path.into(),
            dtype,
            shape: shape.into(),
            strides: dense_strides(shape),
        };
        Structure { leaves: leaves.map(leaf).collect() }
    }

    /// Leaves as described; no two have the same path.
    pub(crate) fn from_leaves(leaves: Vec<LeafSpec>) -> Structure {
        Structure { leaves }
    }

    /// The same leaves with one more axis in front.
    pub(crate) fn batched(&self, len: usize) -> Structure {
        let batched = |leaf: &LeafSpec| {
            let shape: Vec<usize> = core::iter::once(len).chain(leaf.shape.iter().copied()).collect();
            LeafSpec { path: leaf.path.clone(), dtype: leaf.dtype, strides: dense_strides(&shape), shape }
        };
        Structure { leaves: self.leaves.iter().map(batched).collect() }
    }

    /// One leaf with one axis, at the root.
    pub(crate) fn flat(dtype: DType, len: usize) -> Structure {
        let strides = Strides::from_slice(&[1]);
        Structure { leaves: vec![LeafSpec { path: "".into(), dtype, shape: vec![len], strides }] }
    }

    pub(crate) fn observed<T: Tree + ?Sized>(tree: &T) -> Structure {
        let mut leaves = Vec::new();
        tree.walk(&mut Walk::new(&mut String::new(), &mut |path, leaf| leaves.push(LeafSpec::of(path, &leaf))));
        Structure { leaves }
    }

    /// The leaves, in order.
    pub fn leaves(&self) -> &[LeafSpec] {
        &self.leaves
    }

    /// How many leaves.
    pub fn len(&self) -> usize {
        self.leaves.len()
    }

    /// Whether there is no leaf.
    pub fn is_empty(&self) -> bool {
        self.leaves.is_empty()
    }

    /// How many elements all leaves have together.
    pub fn elements(&self) -> usize {
        self.leaves.iter().map(LeafSpec::len).sum()
    }

    /// The paths, in order.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.leaves.iter().map(LeafSpec::path)
    }

    /// The number of the leaf at a path.
    pub fn index_of(&self, path: &str) -> Option<usize> {
        self.leaves.iter().position(|l| l.path() == path)
    }

    /// The structure of a tree whose leaves have one more axis, the first, of this length.
    pub(crate) fn with_first_axis(&self, len: usize) -> Structure {
        let batched = |leaf: &LeafSpec| {
            let shape: Vec<usize> = [len].into_iter().chain(leaf.shape.iter().copied()).collect();
            LeafSpec { strides: super::dense_strides(&shape), shape, ..leaf.clone() }
        };
        Structure { leaves: self.leaves.iter().map(batched).collect() }
    }

    /// A number that is the same for equal paths, types and shapes in the same order, on every machine and in every
    /// version of this crate (FNV-1a of their text). Memory order does not count.
    pub fn fingerprint(&self) -> u64 {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        let mut add = |text: &str| {
            for byte in text.bytes().chain([0]) {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        };
        for leaf in &self.leaves {
            add(leaf.path());
            add(leaf.dtype.name());
            add(&format!("{:?}", leaf.shape));
        }
        hash
    }

    /// Every leaf in which a tree differs from this structure: missing, unexpected, of another shape or type, or out of
    /// order. Empty if they agree.
    pub fn differences<T: Tree + ?Sized>(&self, tree: &T) -> Vec<Difference> {
        self.compare(&Structure::observed(tree), |ours, theirs| ours == theirs)
    }

    /// As `differences`, where `fits(ours, theirs)` says which types are good enough.
    pub(crate) fn compare(&self, other: &Structure, fits: impl Fn(DType, DType) -> bool) -> Vec<Difference> {
        let mut found = Vec::new();
        for ours in &self.leaves {
            let Some(theirs) = other.leaves.iter().find(|l| l.path == ours.path) else {
                found.push(Difference::Missing { expected: ours.clone() });
                continue;
            };
            if ours.shape != theirs.shape {
                let (path, expected) = (ours.path().into(), ours.shape.clone());
                found.push(Difference::Shape { path, expected, found: theirs.shape.clone() });
            }
            if !fits(ours.dtype, theirs.dtype) {
                found.push(Difference::DType { path: ours.path().into(), expected: ours.dtype, found: theirs.dtype });
            }
        }
        let unexpected = other.leaves.iter().filter(|l| self.index_of(l.path()).is_none());
        found.extend(unexpected.map(|l| Difference::Unexpected { found: l.clone() }));
        if found.is_empty() && !self.paths().eq(other.paths()) {
            let [expected, found_] = [self, other].map(|s| s.paths().map(String::from).collect());
            found.push(Difference::Order { expected, found: found_ });
        }
        found
    }
}

impl fmt::Display for Structure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.leaves.iter().try_for_each(|leaf| writeln!(f, "{leaf}"))
    }
}

/// One way in which a tree differs from what was expected.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Difference {
    /// A leaf that was expected is not there.
    Missing {
        /// The leaf that was expected.
        expected: LeafSpec,
    },
    /// A leaf is there that was not expected.
    Unexpected {
        /// The leaf that was found.
        found: LeafSpec,
    },
    /// A leaf has another shape.
    Shape {
        /// Its path.
        path: String,
        /// The shape that was expected.
        expected: Vec<usize>,
        /// The shape that was found.
        found: Vec<usize>,
    },
    /// A leaf has a type that does not fit.
    DType {
        /// Its path.
        path: String,
        /// The type that was expected.
        expected: DType,
        /// The type that was found.
        found: DType,
    },
    /// The same leaves in another order.
    Order {
        /// The paths in the expected order.
        expected: Vec<String>,
        /// The paths as found.
        found: Vec<String>,
    },
    /// Two leaves with the same path.
    Duplicate {
        /// The path.
        path: String,
    },
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Difference::Missing { expected } => write!(f, "missing leaf {expected}"),
            Difference::Unexpected { found } => write!(f, "unexpected leaf {found}"),
            Difference::Shape { path, expected, found } => {
                write!(f, "{}: expected shape {expected:?}, found {found:?}", Named(path))
            }
            Difference::DType { path, expected, found } => {
                write!(f, "{}: expected type {expected}, found {found}", Named(path))?;
                if expected.compute().size() < found.size() {
                    write!(f, "; convert this leaf first, it is never narrowed in silence")?;
                }
                Ok(())
            }
            Difference::Order { expected, found } => write!(f, "expected the order {expected:?}, found {found:?}"),
            Difference::Duplicate { path } => write!(f, "{}: more than one leaf has this path", Named(path)),
        }
    }
}
