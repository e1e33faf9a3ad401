use super::operand::Operand;
use super::set::{TreeSet, check_direction, projection};
use super::vector::Vector;
use crate::Result;
use crate::tree::TreeMut;

/// Projects a tree, as one vector, onto the line of multiples of another.
///
/// `a` is a number for all elements, which then become their mean, or a tree with the same leaves, each with as many
/// elements or one.
///
/// # Arithmetic
///
/// ```text
/// x ← ⟨a, x⟩ / ⟨a, a⟩ · a
/// ```
///
/// # Cost
///
/// Two passes; `a` is copied as `f64`.
///
/// # Errors
///
/// Fails, with nothing changed, if `a` is zero everywhere or not finite, or is a tree that does not fit.
///
/// # Example
///
/// ```
/// use gradchain::projection::projection_vector;
///
/// let mut tree = (vec![1.0_f32, 2.0], 3.0_f64);
/// projection_vector(&mut tree, &(vec![0.0_f64, 1.0], 1.0_f64))?;
/// assert_eq!(tree, (vec![0.0, 2.5], 2.5));
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Optax, [`projection_vector`](https://optax.readthedocs.io/en/latest/api/projections.html). Differs: in place, in the
/// dtypes of the tree, not of `a`; an `a` of zeros is refused.
pub fn projection_vector<T: TreeMut + ?Sized>(tree: &mut T, a: impl Into<Operand>) -> Result<()> {
    super::Projection::project(&vector(a), tree)
}

/// Returns the set of all multiples of `a`; see [`projection_vector`].
pub fn vector(a: impl Into<Operand>) -> VectorLine {
    VectorLine::with(a)
}

projection! {
    /// See [`vector`](fn@vector).
    VectorLine as "projection_vector" over tree {
        /// The direction; not zero everywhere.
        a: Operand in FINITE;
    }
    check check_direction;
}

impl TreeSet for VectorLine {
    fn along(&self) -> Option<(&'static str, &Operand)> {
        Some(("a", &self.a))
    }

    fn move_to(&self, _: u64, x: &mut dyn Vector) {
        let share = x.sum_with(|x, a| x * a) / x.sum_with(|_, a| a * a);
        x.map_with(|_, a| share * a);
    }
}
