use super::operand::Operand;
use super::set::{TreeSet, check_direction, projection};
use super::vector::Vector;
use crate::part::prelude::*;
use crate::tree::TreeMut;

/// Projects a tree, as one vector, onto the hyperplane `⟨a, x⟩ = b`.
///
/// `a` is a number for all elements (1 fixes their sum), or a tree with the same leaves, each with as many elements or
/// one.
///
/// # Arithmetic
///
/// ```text
/// x ← x + (b − ⟨a, x⟩) / ⟨a, a⟩ · a
/// ```
///
/// # Cost
///
/// Two passes; `a` is copied as `f64`.
///
/// # Errors
///
/// Fails, with nothing changed, if `a` is zero everywhere, `a` or `b` is not finite, or `a` is a tree that does not
/// fit.
///
/// # Example
///
/// ```
/// use gradchain::projection::projection_hyperplane;
///
/// let mut tree = (vec![1.0_f32, 2.0], 3.0_f64);
/// projection_hyperplane(&mut tree, &(vec![0.0_f64, 1.0], 1.0_f64), 1.0)?;
/// assert_eq!(tree, (vec![1.0, 0.0], 1.0));
/// projection_hyperplane(&mut tree, 1.0, 0.5)?;
/// assert_eq!(tree, (vec![0.5, -0.5], 0.5), "the elements have the sum 0.5");
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Optax, [`projection_hyperplane`](https://optax.readthedocs.io/en/latest/api/projections.html). Differs: in place, in
/// the dtypes of the tree; an `a` of zeros is refused.
pub fn projection_hyperplane<T: TreeMut + ?Sized>(tree: &mut T, a: impl Into<Operand>, b: f64) -> Result<()> {
    super::Projection::project(&hyperplane(a, b), tree)
}

/// Returns the set of all points with `⟨a, x⟩ = b`; see [`projection_hyperplane`].
pub fn hyperplane(a: impl Into<Operand>, b: impl IntoHyperparam) -> Hyperplane {
    Hyperplane::with(a, b)
}

projection! {
    /// See [`hyperplane`].
    Hyperplane as "projection_hyperplane" over tree {
        /// The normal of the plane; not zero everywhere.
        a: Operand in FINITE;
        /// The inner product of `a` with the points of the plane.
        b: Hyperparam in FINITE;
    }
    check check_direction;
}

impl TreeSet for Hyperplane {
    fn along(&self) -> Option<(&'static str, &Operand)> {
        Some(("a", &self.a))
    }

    fn move_to(&self, count: u64, x: &mut dyn Vector) {
        let distance = distance(x, self.b.at(count));
        x.map_with(|x, a| x + distance * a);
    }
}

/// Returns the distance to the plane in units of `‖a‖`.
pub(super) fn distance(x: &mut dyn Vector, b: f64) -> f64 {
    (b - x.sum_with(|x, a| x * a)) / x.sum_with(|_, a| a * a)
}
