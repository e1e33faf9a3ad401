use super::l1_sphere::shrink;
use super::set::{TreeSet, projection};
use super::vector::Vector;
use crate::part::prelude::*;
use crate::tree::TreeMut;

/// Projects a tree, as one vector, onto the L1 ball: absolute values that sum to at most `scale`.
///
/// Small elements become zero, so that this constraint makes parameters sparse.
///
/// # Arithmetic
///
/// ```text
/// x unchanged                              if Σ|x| ≤ scale; else
/// x ← ±max(|x| − τ, 0)                     with the sign of x; τ such that the sum of absolute values is scale
/// ```
///
/// # Cost
///
/// One pass for a point inside, without a write; otherwise as [`projection_simplex`](super::projection_simplex).
///
/// # Errors
///
/// Fails, with nothing changed, if `scale` is negative or not finite.
///
/// # Example
///
/// ```
/// use gradchain::projection::projection_l1_ball;
///
/// let mut tree = (vec![1.0_f32, -2.0], 0.25_f64);
/// projection_l1_ball(&mut tree, 4.0)?;
/// assert_eq!(tree, (vec![1.0, -2.0], 0.25), "inside");
/// projection_l1_ball(&mut tree, 1.0)?;
/// assert_eq!(tree, (vec![0.0, -1.0], 0.0));
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Duchi et al., [Efficient projections onto the l1-ball for learning in high
/// dimensions](https://doi.org/10.1145/1390156.1390191), 2008. Optax,
/// [`projection_l1_ball`](https://optax.readthedocs.io/en/latest/api/projections.html), whose `scale` defaults to 1.
/// Differs: in place; a `scale` of 0 gives zeros instead of NaN, a negative one is refused.
pub fn projection_l1_ball<T: TreeMut + ?Sized>(tree: &mut T, scale: f64) -> Result<()> {
    super::Projection::project(&l1_ball(scale), tree)
}

/// Returns the set of all points whose absolute values sum to at most `scale`; see [`projection_l1_ball`].
pub fn l1_ball(scale: impl IntoHyperparam) -> L1Ball {
    L1Ball::with(scale)
}

projection! {
    /// See [`l1_ball`].
    L1Ball as "projection_l1_ball" over tree {
        /// The radius.
        scale: Hyperparam in NOT_NEGATIVE;
    }
}

impl TreeSet for L1Ball {
    fn move_to(&self, count: u64, x: &mut dyn Vector) {
        let scale = self.scale.at(count);
        // NaN is outside.
        let norm = x.sum(f64::abs);
        if norm > scale || norm.is_nan() {
            shrink(x, scale);
        }
    }
}
