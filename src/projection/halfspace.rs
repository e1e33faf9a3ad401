use super::hyperplane::distance;
use super::operand::Operand;
use super::set::{TreeSet, check_direction, projection};
use super::vector::Vector;
use crate::part::prelude::*;
use crate::tree::TreeMut;

/// Projects a tree, as one vector, onto the halfspace `⟨a, x⟩ ≤ b`.
///
/// `a` is a number for all elements (1 constrains their sum), or a tree with the same leaves, each with as many
/// elements or one.
///
/// # Arithmetic
///
/// ```text
/// x ← x + min((b − ⟨a, x⟩) / ⟨a, a⟩, 0) · a
/// ```
///
/// # Cost
///
/// One pass for a point inside, without a write; otherwise two; `a` is copied as `f64`.
///
/// # Errors
///
/// Fails, with nothing changed, if `a` is zero everywhere, `a` or `b` is not finite, or `a` is a tree that does not
/// fit.
///
/// # Example
///
/// ```
/// use gradchain::projection::projection_halfspace;
///
/// let mut tree = (vec![1.0_f32, 2.0], 3.0_f64);
/// projection_halfspace(&mut tree, 1.0, 7.0)?;
/// assert_eq!(tree, (vec![1.0, 2.0], 3.0), "inside");
/// projection_halfspace(&mut tree, &(vec![0.0_f64, 1.0], 1.0_f64), 1.0)?;
/// assert_eq!(tree, (vec![1.0, 0.0], 1.0));
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Optax, [`projection_halfspace`](https://optax.readthedocs.io/en/latest/api/projections.html). Differs: in place, in
/// the dtypes of the tree; a point inside stays bitwise identical; an `a` of zeros is refused.
pub fn projection_halfspace<T: TreeMut + ?Sized>(tree: &mut T, a: impl Into<Operand>, b: f64) -> Result<()> {
    super::Projection::project(&halfspace(a, b), tree)
}

/// Returns the set of all points with `⟨a, x⟩ ≤ b`; see [`projection_halfspace`].
pub fn halfspace(a: impl Into<Operand>, b: impl IntoHyperparam) -> Halfspace {
    Halfspace::with(a, b)
}

projection! {
    /// See [`halfspace`].
    Halfspace as "projection_halfspace" over tree {
        /// The normal of the plane; not zero everywhere.
        a: Operand in FINITE;
        /// The inner product of `a` with the points of the plane.
        b: Hyperparam in FINITE;
    }
    check check_direction;
}

impl TreeSet for Halfspace {
    fn along(&self) -> Option<(&'static str, &Operand)> {
        Some(("a", &self.a))
    }

    fn move_to(&self, count: u64, x: &mut dyn Vector) {
        let distance = distance(x, self.b.at(count));
        // NaN is outside.
        if distance < 0.0 || distance.is_nan() {
            x.map_with(|x, a| x + distance * a);
        }
    }
}
