//! Maps between raw numbers and one leaf.

use core::fmt;

use crate::element::DType;
use crate::error::{Error, Result};
use crate::layout::LeafSpec;

/// A map from unconstrained raw numbers to a leaf in a set.
///
/// Elements are passed in row-major order and in `f64`, whatever the leaf's type and layout. Results are rounded to the
/// leaf's type afterwards; `to` is zeroed before. [`Raw`] ensures that raw numbers and results
/// are finite. Leaves without elements are skipped.
///
/// # Example: by hand
///
/// Angles, which are written as a number of whole turns and so have any size:
///
/// ```
/// use gradchain::constraint::{Constraint, Constraints, ConstrainedLeaf};
/// use gradchain::Result;
///
/// #[derive(Debug)]
/// struct Turns;
///
/// const TURN: f64 = core::f64::consts::TAU;
///
/// impl Constraint for Turns {
///     fn constrain(&self, _: &ConstrainedLeaf<'_>, raw: &[f64], to: &mut [f64]) -> Result<()> {
///         to.iter_mut().zip(raw).for_each(|(to, raw)| *to = TURN * (raw - raw.floor()));
///         Ok(())
///     }
///     fn pull_back(&self, _: &ConstrainedLeaf<'_>, _: &[f64], gradient: &[f64], to: &mut [f64]) -> Result<()> {
///         to.iter_mut().zip(gradient).for_each(|(to, g)| *to = TURN * g);
///         Ok(())
///     }
///     fn unconstrain(&self, leaf: &ConstrainedLeaf<'_>, values: &[f64], to: &mut [f64]) -> Result<()> {
///         for (i, (to, value)) in to.iter_mut().zip(values).enumerate() {
///             if !(0.0..TURN).contains(value) {
///                 return Err(leaf.refuse_element(i, "at least 0 and less than 2π", value));
///             }
///             *to = value / TURN;
///         }
///         Ok(())
///     }
/// }
///
/// let angles = Constraints::new().at("phase", Turns);
/// # use gradchain::tree::DynTree;
/// let mut params = DynTree::new();
/// params.insert("phase", ndarray::array![1.0_f64, 7.0]);
/// let error = angles.unconstrain(&params).unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "unconstrain: argument `phase[1]` must be at least 0 and less than 2π, found 7"
/// );
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// [`Raw`]: https://docs.rs/gradchain/latest/gradchain/constraint/struct.Raw.html
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a constraint",
    note = "the module `gradchain::constraint` has some, such as `interval(0.0, 1.0)` and `positive()`"
)]
pub trait Constraint: fmt::Debug + Send + Sync + 'static {
    /// Returns the raw leaves of a leaf, at least one and of at most `isize::MAX` bytes; by default one, `raw`, of the
    /// leaf's own shape.
    ///
    /// # Errors
    ///
    /// Fails if no leaf of this shape or type can be in the set, or an argument of the constraint is out of its range.
    fn parts(&self, leaf: &ConstrainedLeaf<'_>) -> Result<Vec<Part>> {
        Ok(vec![Part::new("raw", leaf.shape())])
    }

    /// Computes the leaf from raw numbers: those of all parts, in order.
    ///
    /// # Errors
    ///
    /// Fails if these raw numbers map to no point of the set.
    fn constrain(&self, leaf: &ConstrainedLeaf<'_>, raw: &[f64], to: &mut [f64]) -> Result<()>;

    /// Computes the gradient with respect to the raw numbers from that with respect to the leaf.
    ///
    /// It is the vector-Jacobian product: the transposed Jacobian of [`constrain`](Constraint::constrain), times
    /// `gradient`.
    ///
    /// It is linear in the gradient. Very large gradients are passed scaled down, so that sums of them stay finite.
    ///
    /// # Errors
    ///
    /// As [`constrain`](Constraint::constrain).
    fn pull_back(&self, leaf: &ConstrainedLeaf<'_>, raw: &[f64], gradient: &[f64], to: &mut [f64]) -> Result<()>;

    /// Computes raw numbers that map to these values.
    ///
    /// # Errors
    ///
    /// Fails if the values are not in the set.
    fn unconstrain(&self, leaf: &ConstrainedLeaf<'_>, values: &[f64], to: &mut [f64]) -> Result<()>;
}

/// A raw leaf: its name below the leaf's own path, and its shape.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    #[doc(hidden)]
    pub name: &'static str,
    #[doc(hidden)]
    pub shape: Vec<usize>,
}

impl Part {
    /// Returns a raw leaf of this name and shape.
    pub fn new(name: &'static str, shape: &[usize]) -> Part {
        Part { name, shape: shape.into() }
    }
}

/// The leaf of a [`Constraint`], and the current operation, for messages.
#[derive(Clone, Copy, Debug)]
pub struct ConstrainedLeaf<'a> {
    function: &'static str,
    spec: &'a LeafSpec,
}

impl<'a> ConstrainedLeaf<'a> {
    #[doc(hidden)]
    pub fn new(function: &'static str, spec: &'a LeafSpec) -> ConstrainedLeaf<'a> {
        ConstrainedLeaf { function, spec }
    }

    /// Returns path, shape and type of the leaf.
    pub fn spec(&self) -> &'a LeafSpec {
        self.spec
    }

    /// Returns the axis lengths of the leaf.
    pub fn shape(&self) -> &'a [usize] {
        self.spec.shape()
    }

    /// Returns the type of the leaf's elements.
    pub fn dtype(&self) -> DType {
        self.spec.dtype()
    }

    /// Returns an error: the leaf is not as expected.
    pub fn refuse(&self, expected: &str, found: impl fmt::Display) -> Error {
        Error::argument(self.function, shown(self.spec.path()), expected, found)
    }

    /// Returns an error: an element of the leaf, numbered in row-major order, is not as expected.
    pub fn refuse_element(&self, element: usize, expected: &str, found: impl fmt::Display) -> Error {
        let place = format!("{}{}", shown(self.spec.path()), index(element, self.shape()));
        Error::argument(self.function, &place, expected, found)
    }
}

/// Returns a path for messages; empty for a bare array.
pub fn shown(path: &str) -> &str {
    if path.is_empty() { "(root)" } else { path }
}

/// Returns an element's index, such as `[1, 0]`; empty without axes.
pub fn index(mut element: usize, shape: &[usize]) -> String {
    let mut places = vec![0; shape.len()];
    for (place, &len) in places.iter_mut().zip(shape).rev() {
        *place = element % len.max(1);
        element /= len.max(1);
    }
    if places.is_empty() { String::new() } else { format!("{places:?}") }
}
