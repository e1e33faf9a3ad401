use super::l2_sphere::{length, rescale_norm};
use super::set::{TreeSet, projection};
use super::vector::Vector;
use crate::part::prelude::*;
use crate::tree::TreeMut;

/// Projects a tree, as one vector, onto the L2 ball: a Euclidean norm of at most `scale`.
///
/// # Arithmetic
///
/// ```text
/// x ← x·scale / √(Σx²)          if that root is larger than scale; else unchanged
/// ```
///
/// # Cost
///
/// One pass for a point inside, without a write; otherwise two.
///
/// # Errors
///
/// Fails, with nothing changed, if `scale` is negative or not finite.
///
/// # Example
///
/// ```
/// use gradchain::projection::projection_l2_ball;
///
/// let mut tree = (vec![3.0_f32, 0.0], -4.0_f64);
/// projection_l2_ball(&mut tree, 10.0)?;
/// assert_eq!(tree, (vec![3.0, 0.0], -4.0), "inside");
/// projection_l2_ball(&mut tree, 2.5)?;
/// assert_eq!(tree, (vec![1.5, 0.0], -2.0));
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Optax, [`projection_l2_ball`](https://optax.readthedocs.io/en/latest/api/projections.html), with a default `scale`
/// of 1. Differs: in place; a point inside stays bitwise identical; a `scale` of 0 gives zeros also from the origin,
/// where Optax gives NaN, and a negative one is refused.
pub fn projection_l2_ball<T: TreeMut + ?Sized>(tree: &mut T, scale: f64) -> Result<()> {
    super::Projection::project(&l2_ball(scale), tree)
}

/// Returns the set of all points with a Euclidean norm of at most `scale`; see [`projection_l2_ball`].
pub fn l2_ball(scale: impl IntoHyperparam) -> L2Ball {
    L2Ball::with(scale)
}

projection! {
    /// See [`l2_ball`].
    L2Ball as "projection_l2_ball" over tree {
        /// The radius.
        scale: Hyperparam in NOT_NEGATIVE;
    }
}

impl TreeSet for L2Ball {
    fn move_to(&self, count: u64, x: &mut dyn Vector) {
        let (norm, scale) = (length(x), self.scale.at(count));
        // NaN is outside.
        if norm > scale || norm.is_nan() {
            rescale_norm(x, norm, scale);
        }
    }
}
