use super::operand::{Operand, TreeValues};
use super::set::{ElementSet, projection};
use crate::Result;
use crate::tree::TreeMut;

/// Clamps each element to `[0, scale]`: the projection onto a hypercube.
///
/// # Arithmetic
///
/// ```text
/// x ← min(max(x, 0), scale)          a NaN stays NaN
/// ```
///
/// # Cost
///
/// One pass; a `scale` that is a tree is copied as `f64`.
///
/// # Errors
///
/// Fails, with nothing changed, if `scale` is negative or NaN anywhere, or is a tree that does not fit.
///
/// # Example
///
/// ```
/// use gradchain::projection::projection_hypercube;
///
/// let mut tree = (vec![1.5_f32, -2.0], 0.5_f64);
/// projection_hypercube(&mut tree, 1.0)?;
/// assert_eq!(tree, (vec![1.0, 0.0], 0.5));
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Optax, [`projection_hypercube`](https://optax.readthedocs.io/en/latest/api/projections.html), whose `scale` defaults
/// to 1. Differs: as [`projection_box`](super::projection_box).
pub fn projection_hypercube<T: TreeMut + ?Sized>(tree: &mut T, scale: impl Into<Operand>) -> Result<()> {
    super::Projection::project(&hypercube(scale), tree)
}

/// Returns the set of all points between zero and a bound, a number or a tree; see [`projection_hypercube`].
pub fn hypercube(scale: impl Into<Operand>) -> Hypercube {
    Hypercube::with(scale)
}

projection! {
    /// See [`hypercube`].
    Hypercube as "projection_hypercube" over elements {
        /// The largest values.
        scale: Operand in AT_LEAST_0;
    }
}

impl ElementSet for Hypercube {
    fn numbers(&self, count: u64) -> [f64; 2] {
        [0.0, self.scale.number(count).unwrap_or(f64::NAN)]
    }

    fn trees(&self) -> [Option<(&'static str, &TreeValues)>; 2] {
        [None, self.scale.tree().map(|tree| ("scale", tree))]
    }
}
