//! One leaf without its values, and how two of them differ.

use core::fmt;
use core::hash::{Hash, Hasher};
use core::ops::Range;
use std::sync::Arc;

use super::{Cursor, Layout, Strides, dense_strides, elements, matching_strides};
use crate::element::DType;

/// Path, type, shape and memory order of one leaf.
///
/// Two leaves are equal whatever [layout](LeafSpec::layout) their trees say they have: gradients need not say it.
#[derive(Clone, Debug)]
pub struct LeafSpec {
    path: Arc<str>,
    dtype: DType,
    shape: Vec<usize>,
    strides: Strides,
    /// Which elements, in the order of the strides, are worked on here; `None` if all.
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
    /// In row-major order.
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

    /// In the order of an array with these strides.
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

    /// The same leaf of a tree that says how its weights are stored.
    pub(crate) fn stored_as(self, layout: Layout) -> LeafSpec {
        LeafSpec { layout, ..self }
    }

    /// The same with one more axis in front, in row-major order.
    pub(crate) fn batched(&self, len: usize) -> LeafSpec {
        let shape: Vec<usize> = [len].into_iter().chain(self.shape.iter().copied()).collect();
        LeafSpec::new(self.path.clone(), self.dtype, shape)
    }

    /// A leaf of this one's path that holds something else: of another type, and of its shape or one of its own.
    pub(crate) fn standing_for(&self, dtype: DType, shape: Option<Vec<usize>>) -> LeafSpec {
        let path = self.path.clone();
        match shape {
            Some(shape) => LeafSpec::new(path, dtype, shape),
            None => LeafSpec { path, dtype, here: None, ..self.clone() },
        }
    }

    /// The same leaf, of which only these elements are worked on here, in the order of the strides.
    pub(crate) fn only(&self, here: Range<usize>) -> LeafSpec {
        LeafSpec { here: Some((here.start, here.end)), ..self.clone() }
    }

    /// The elements that are worked on here: all, unless other machines have some.
    pub(crate) fn here(&self) -> Range<usize> {
        self.here.map_or(0..self.len(), |(start, end)| start..end)
    }

    /// Where those begin.
    pub(crate) fn begins(&self) -> usize {
        self.here.map_or(0, |(start, _)| start)
    }

    /// Whether all elements are worked on here.
    pub(crate) fn is_whole(&self) -> bool {
        self.here.is_none() || self.here() == (0..self.len())
    }

    /// Whether only some machines work on it, of which this may be one.
    pub(crate) fn is_shared(&self) -> bool {
        self.here.is_some()
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

    /// How weights are stored in the tree that the leaf is of: [`Layout::InOut`] unless the tree says otherwise.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// How many elements.
    #[allow(clippy::len_without_is_empty, reason = "a leaf is not a collection")]
    pub fn len(&self) -> usize {
        elements(&self.shape).unwrap_or(usize::MAX)
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

    /// How many elements apart the neighbours along each axis are in state arrays, and in updates as parts see them:
    /// dense, in the parameter's own memory order.
    pub fn strides(&self) -> &[isize] {
        &self.strides
    }
}

impl fmt::Display for LeafSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} {:?}", Named(&self.path), self.dtype, self.shape)
    }
}

/// A path as it is shown in messages; the path of a bare array is empty.
pub(super) struct Named<'a>(pub(super) &'a str);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "(root)" } else { self.0 })
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
    /// Rows of a leaf that are not as many as their indices, or of another length.
    Rows {
        /// The leaf's path.
        path: String,
        /// The shape that they need: as many rows as there are indices.
        expected: Vec<usize>,
        /// Their shape.
        found: Vec<usize>,
    },
    /// A row that a leaf does not have.
    Row {
        /// Its path.
        path: String,
        /// How many rows it has.
        rows: usize,
        /// The number of the row, from 0.
        found: usize,
    },
    /// A leaf's elements lie in another order in memory, where that counts.
    MemoryOrder {
        /// Its path.
        path: String,
        /// The strides that were expected.
        expected: Vec<isize>,
        /// The strides that were found.
        found: Vec<isize>,
    },
    /// The same leaves in another order.
    Order {
        /// The paths in the expected order.
        expected: Vec<String>,
        /// The paths as found.
        found: Vec<String>,
    },
    /// A leaf has elements in the same place in memory as another.
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
                    write!(f, "; convert this leaf first, it is never narrowed in silence")?;
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
                // Leaves that may be absent are in no order.
                let there = expected.iter().filter(|path| found.contains(path));
                let first = there.zip(found).find(|(expected, found)| expected != found);
                write!(f, "the leaves come in another order")?;
                if let Some((expected, found)) = first {
                    write!(f, ": expected {}, found {}", Named(expected), Named(found))?;
                }
                write!(f, "; a map has them by name, a struct as its fields are declared")
            }
            Difference::Shared { path, with } => write!(f, "{}: shares memory with `{}`", Named(path), Named(with)),
            Difference::Duplicate { path } => {
                write!(f, "{}: more than one leaf has this path; give each its own", Named(path))
            }
        }
    }
}
