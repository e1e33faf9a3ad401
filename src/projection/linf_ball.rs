use super::set::{ElementSet, projection};
use crate::part::prelude::*;
use crate::tree::TreeMut;

/// Clamps each element to `[−scale, scale]`: the projection onto the L∞ ball.
///
/// # Arithmetic
///
/// ```text
/// x ← min(max(x, −scale), scale)          a NaN stays NaN
/// ```
///
/// # Cost
///
/// One pass.
///
/// # Errors
///
/// Fails, with nothing changed, if `scale` is negative or NaN.
///
/// # Example
///
/// ```
/// use gradchain::projection::projection_linf_ball;
///
/// let mut tree = (vec![1.5_f32, -2.0], 0.5_f64);
/// projection_linf_ball(&mut tree, 1.0)?;
/// assert_eq!(tree, (vec![1.0, -1.0], 0.5));
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Optax, [`projection_linf_ball`](https://optax.readthedocs.io/en/latest/api/projections.html), whose `scale` defaults
/// to 1. Differs: in place; a negative `scale` is refused.
pub fn projection_linf_ball<T: TreeMut + ?Sized>(tree: &mut T, scale: f64) -> Result<()> {
    super::Projection::project(&linf_ball(scale), tree)
}

/// Returns the set of all points whose elements have at most this absolute value; see [`projection_linf_ball`].
pub fn linf_ball(scale: impl IntoHyperparam) -> LinfBall {
    LinfBall::with(scale)
}

projection! {
    /// See [`linf_ball`].
    LinfBall as "projection_linf_ball" over elements {
        /// The radius.
        scale: Hyperparam in AT_LEAST_0;
    }
}

impl ElementSet for LinfBall {
    fn numbers(&self, count: u64) -> [f64; 2] {
        let scale = self.scale.at(count);
        [-scale, scale]
    }
}
