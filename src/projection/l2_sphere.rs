use super::set::{TreeSet, projection};
use super::vector::Vector;
use crate::internal::numeric::is_safe;
use crate::part::prelude::*;
use crate::tree::TreeMut;

/// Projects a tree, as one vector, onto the L2 sphere: the Euclidean norm `scale`.
///
/// # Arithmetic
///
/// ```text
/// x ← x·scale / √(Σx²)          if x is not 0; else every element ← scale / √n
/// ```
///
/// All points of the sphere are equally near to the origin; the origin is projected onto the point with equal elements.
///
/// # Cost
///
/// Two passes.
///
/// # Errors
///
/// Fails, with nothing changed, if `scale` is negative or not finite. A tree without elements is left alone.
///
/// # Example
///
/// ```
/// use gradchain::projection::projection_l2_sphere;
///
/// let mut tree = (vec![3.0_f32, 0.0], -4.0_f64);
/// projection_l2_sphere(&mut tree, 10.0)?;
/// assert_eq!(tree, (vec![6.0, 0.0], -8.0));
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Optax, [`projection_l2_sphere`](https://optax.readthedocs.io/en/latest/api/projections.html), whose `scale` defaults
/// to 1. Differs: in place; the origin gives a point of the sphere instead of NaN, and a negative `scale`, which
/// negates Optax's result, is refused.
pub fn projection_l2_sphere<T: TreeMut + ?Sized>(tree: &mut T, scale: f64) -> Result<()> {
    super::Projection::project(&l2_sphere(scale), tree)
}

/// Returns the set of all points with the Euclidean norm `scale`; see [`projection_l2_sphere`].
pub fn l2_sphere(scale: impl IntoHyperparam) -> L2Sphere {
    L2Sphere::with(scale)
}

projection! {
    /// See [`l2_sphere`].
    L2Sphere as "projection_l2_sphere" over tree {
        /// The radius.
        scale: Hyperparam in NOT_NEGATIVE;
    }
}

impl TreeSet for L2Sphere {
    fn move_to(&self, count: u64, x: &mut dyn Vector) {
        let (norm, scale) = (length(x), self.scale.at(count));
        if norm == 0.0 {
            let equal = scale / (x.elements() as f64).sqrt();
            return x.map(|_| equal);
        }
        rescale_norm(x, norm, scale);
    }
}

/// Returns the Euclidean norm, without overflow or underflow.
pub(super) fn length(x: &mut dyn Vector) -> f64 {
    let squares = x.sum(|x| x * x);
    if is_safe(squares) {
        return squares.sqrt();
    }
    let most = x.max(f64::abs);
    if most == 0.0 || !most.is_finite() { most } else { most * x.sum(|x| (x / most) * (x / most)).sqrt() }
}

pub(super) fn rescale_norm(x: &mut dyn Vector, from: f64, to: f64) {
    let factor = to / from;
    // The quotient of norms may overflow or underflow.
    if factor.is_normal() { x.map(|x| x * factor) } else { x.map(|x| x / from * to) }
}
