use super::set::{TreeSet, projection};
use super::simplex::SoftThreshold;
use super::vector::Vector;
use crate::part::prelude::*;
use crate::tree::TreeMut;

/// Projects a tree, as one vector, onto the L1 sphere: absolute values that sum to `scale`.
///
/// # Arithmetic
///
/// ```text
/// x ← ±max(|x| − τ, 0)          with the sign of x; τ such that the sum of absolute values is scale
/// ```
///
/// See [`projection_simplex`](super::projection_simplex) for `τ`. It is negative for a point inside: then zeros move
/// too, in the direction of the sign of the zero, to one of several nearest points.
///
/// # Cost
///
/// As [`projection_simplex`](super::projection_simplex).
///
/// # Errors
///
/// Fails, with nothing changed, if `scale` is negative or not finite. A tree without elements is left alone.
///
/// # Example
///
/// ```
/// use gradchain::projection::projection_l1_sphere;
///
/// let mut tree = (vec![1.0_f32, -2.0], 0.0_f64);
/// projection_l1_sphere(&mut tree, 2.0)?;
/// assert_eq!(tree, (vec![0.5, -1.5], 0.0));
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Duchi et al., [Efficient projections onto the l1-ball for learning in high
/// dimensions](https://doi.org/10.1145/1390156.1390191), 2008. Optax,
/// [`projection_l1_sphere`](https://optax.readthedocs.io/en/latest/api/projections.html), whose `scale` defaults to 1.
/// Differs: in place. Optax multiplies by a sign of 0 for an element of 0, and its result misses the sphere by that
/// element's part: for `(0, 0.1)` and a `scale` of 1 it is `(0, 0.55)`. Here it is `(0.45, 0.55)`.
pub fn projection_l1_sphere<T: TreeMut + ?Sized>(tree: &mut T, scale: f64) -> Result<()> {
    super::Projection::project(&l1_sphere(scale), tree)
}

/// Returns the set of all points whose absolute values sum to `scale`; see [`projection_l1_sphere`].
pub fn l1_sphere(scale: impl IntoHyperparam) -> L1Sphere {
    L1Sphere::with(scale)
}

projection! {
    /// See [`l1_sphere`].
    L1Sphere as "projection_l1_sphere" over tree {
        /// The radius.
        scale: Hyperparam in NOT_NEGATIVE;
    }
}

impl TreeSet for L1Sphere {
    fn move_to(&self, count: u64, x: &mut dyn Vector) {
        shrink(x, self.scale.at(count));
    }
}

pub(super) fn shrink(x: &mut dyn Vector, scale: f64) {
    let threshold = SoftThreshold::new(x, f64::abs, scale);
    x.map(|x| threshold.rest(x.abs()).copysign(x));
}
