//! One leaf without its values, and differences between leaves.

use core::fmt;
use core::hash::{Hash, Hasher};
use core::ops::Range;
use std::sync::Arc;

use super::{Cursor, Layout, Strides, dense_strides, elements, matching_strides};
use crate::element::DType;

/// Path, type, shape and memory order of one leaf.
///
/// Two leaves are equal even if their trees give them different [layouts](LeafSpec::layout): gradients need none.
#[derive(Clone, Debug)]
pub struct LeafSpec {
    path: Arc<str>,
    dtype: DType,
    shape: Vec<usize>,
    strides: Strides,
    /// This process's elements, in the order of the strides; `None` for all.
    here: Option<(usize, usize)>,
    layout: Layout,
}

impl PartialEq for LeafSpec {
    fn eq(&self, other: &LeafSpec) -> bool {
        let LeafSpec { path, dtype, shape, strides, here, layout: _ } = self;
        (path, dtype, shape, strides, here) == (&other.path, &other.dtype, &other.shape, &other.strides, &other.here)
    }
}

impl Hash for LeafSpec {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let LeafSpec { path, dtype, shape, strides, here, layout: _ } = self;
        (path, dtype, shape, strides, here).hash(state);
    }
}

impl LeafSpec {
    pub(crate) fn new(path: impl Into<Arc<str>>, dtype: DType, shape: impl Into<Vec<usize>>) -> LeafSpec {
        let shape = shape.into();
        LeafSpec {
            path: path.into(),
            dtype,
            strides: dense_strides(&shape),
            shape,
            here: None,
            layout: Layout::default(),
        }
    }

    /// Returns a leaf in the order of these strides.
    pub(crate) fn with_strides(path: &str, dtype: DType, shape: &[usize], strides: &[isize]) -> LeafSpec {
        LeafSpec {
            path: path.into(),
            dtype,
            shape: shape.into(),
            strides: matching_strides(shape, strides),
            here: None,
            layout: Layout::default(),
        }
    }

    pub(crate) fn stored_as(self, layout: Layout) -> LeafSpec {
        LeafSpec { layout, ..self }
    }

    /// Returns this leaf, row-major, with an additional first axis.
    pub(crate) fn batched(&self, len: usize) -> LeafSpec {
        let shape: Vec<usize> = [len].into_iter().chain(self.shape.iter().copied()).collect();
        LeafSpec::new(self.path.clone(), self.dtype, shape)
    }

    /// Returns a leaf of this path with another dtype, and this or its own shape.
    #[doc(hidden)]
    pub fn standing_for(&self, dtype: DType, shape: Option<Vec<usize>>) -> LeafSpec {
        let path = self.path.clone();
        match shape {
            Some(shape) => LeafSpec::new(path, dtype, shape),
            None => LeafSpec { path, dtype, here: None, ..self.clone() },
        }
    }

    /// Restricts the leaf to this process's elements, in the order of the strides.
    pub(crate) fn only(&self, here: Range<usize>) -> LeafSpec {
        LeafSpec { here: Some((here.start, here.end)), ..self.clone() }
    }

    /// Returns this process's elements: all, unless sharded.
    pub(crate) fn here(&self) -> Range<usize> {
        self.here.map_or(0..self.len(), |(start, end)| start..end)
    }

    pub(crate) fn begins(&self) -> usize {
        self.here.map_or(0, |(start, _)| start)
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.here.is_none() || self.here() == (0..self.len())
    }

    /// Returns whether only some processes, perhaps this one, have its elements.
    pub(crate) fn is_shared(&self) -> bool {
        self.here.is_some()
    }

    /// Returns the path in the tree, such as `layers/0/weight`.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the type of the elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns the axis lengths.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Returns the layout of the weights of the leaf's tree, by default [`Layout::InOut`].
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Returns the number of elements.
    #[allow(clippy::len_without_is_empty, reason = "a leaf is not a collection")]
    pub fn len(&self) -> usize {
        elements(&self.shape).unwrap_or(usize::MAX)
    }

    /// Returns the number of axes.
    pub fn ndim(&self) -> usize {
        self.shape.len()
    }

    /// Calls `place` with each element's place in the state arrays, in row-major order.
    #[doc(hidden)]
    pub fn each_place(&self, mut place: impl FnMut(usize)) {
        let order = dense_strides(&self.shape);
        for run in Cursor::new(&self.shape, &order, &self.strides, 0).take(self.len()) {
            (0..run.len as isize).for_each(|i| place((run.offset + i * run.stride) as usize));
        }
    }

    /// Returns the element strides of state arrays, and of updates as parts see them.
    ///
    /// They are dense, in the parameter's own memory order.
    pub fn strides(&self) -> &[isize] {
        &self.strides
    }
}

impl fmt::Display for LeafSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} {:?}", Named(&self.path), self.dtype, self.shape)
    }
}

/// A path for messages; empty for a bare array.
pub(super) struct Named<'a>(pub(super) &'a str);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "(root)" } else { self.0 })
    }
}

/// A difference between a tree and the expected structure.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Difference {
    /// An expected leaf is missing.
    Missing {
        /// The expected leaf.
        expected: LeafSpec,
    },
    /// A leaf is unexpected.
    Unexpected {
        /// The unexpected leaf.
        found: LeafSpec,
    },
    /// A leaf has another shape.
    Shape {
        /// Its path.
        path: String,
        /// The expected shape.
        expected: Vec<usize>,
        /// The actual shape.
        found: Vec<usize>,
    },
    /// A leaf has a type that does not fit.
    DType {
        /// Its path.
        path: String,
        /// The expected type.
        expected: DType,
        /// The actual type.
        found: DType,
    },
    /// The rows of a row-sparse gradient differ in number from the indices, or have another length.
    Rows {
        /// The leaf's path.
        path: String,
        /// The required shape, with as many rows as indices.
        expected: Vec<usize>,
        /// Their shape.
        found: Vec<usize>,
    },
    /// A row that a leaf does not have.
    Row {
        /// Its path.
        path: String,
        /// Number of its rows.
        rows: usize,
        /// The index of the row, from 0.
        found: usize,
    },
    /// A leaf has another memory order, where that matters.
    MemoryOrder {
        /// Its path.
        path: String,
        /// The expected strides.
        expected: Vec<isize>,
        /// The actual strides.
        found: Vec<isize>,
    },
    /// The same leaves in another order.
    Order {
        /// The paths in the expected order.
        expected: Vec<String>,
        /// The paths as found.
        found: Vec<String>,
    },
    /// A leaf shares memory with another.
    Shared {
        /// Its path.
        path: String,
        /// The path of the other.
        with: String,
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
                write!(f, "{}: expected shape {expected:?}, found {found:?}", Named(path))?;
                if expected != found && expected.iter().rev().eq(found.iter()) {
                    write!(f, ", which is transposed")?;
                }
                Ok(())
            }
            Difference::DType { path, expected, found } => {
                write!(f, "{}: expected type {expected}, found {found}", Named(path))?;
                if expected.compute().size() < found.size() {
                    write!(f, "; convert this leaf first, since narrowing is never implicit")?;
                }
                Ok(())
            }
            Difference::Rows { path, expected, found } => {
                let (path, indices) = (Named(path), expected.first().copied().unwrap_or_default());
                write!(f, "{path}: rows of {indices} indices: expected values of shape {expected:?}, found {found:?}")
            }
            Difference::Row { path, rows, found } => {
                write!(f, "{}: expected rows below {rows}, found row {found}", Named(path))
            }
            Difference::MemoryOrder { path, expected, found } => {
                write!(f, "{}: expected a memory order of strides {expected:?}, found {found:?}", Named(path))
            }
            Difference::Order { expected, found } => {
                // Leaves that may be absent are skipped.
                let there = expected.iter().filter(|path| found.contains(path));
                let first = there.zip(found).find(|(expected, found)| expected != found);
                write!(f, "the leaves are in another order")?;
                if let Some((expected, found)) = first {
                    write!(f, ": expected {}, found {}", Named(expected), Named(found))?;
                }
                write!(f, "; maps are ordered by name, structs by declaration")
            }
            Difference::Shared { path, with } => write!(f, "{}: shares memory with `{}`", Named(path), Named(with)),
            Difference::Duplicate { path } => {
                write!(f, "{}: more than one leaf has this path; give each its own", Named(path))
            }
        }
    }
}
