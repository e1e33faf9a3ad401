use super::set::{ElementSet, projection};
use crate::Result;
use crate::tree::TreeMut;

/// Replaces negative elements by zero: the projection onto the non-negative orthant.
///
/// # Arithmetic
///
/// ```text
/// x ← max(x, 0)          a NaN stays NaN
/// ```
///
/// # Cost
///
/// One pass.
///
/// # Errors
///
/// Fails if two leaves of the tree have the same path.
///
/// # Example
///
/// ```
/// use gradchain::projection::projection_non_negative;
///
/// let mut tree = (vec![1.0_f32, -2.0], -3.0_f64);
/// projection_non_negative(&mut tree)?;
/// assert_eq!(tree, (vec![1.0, 0.0], 0.0));
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Optax, [`projection_non_negative`](https://optax.readthedocs.io/en/latest/api/projections.html). Differs: in place.
pub fn projection_non_negative<T: TreeMut + ?Sized>(tree: &mut T) -> Result<()> {
    super::Projection::project(&non_negative(), tree)
}

/// Returns the set of all points without a negative element; see [`projection_non_negative`].
pub fn non_negative() -> NonNegative {
    NonNegative::with()
}

projection! {
    /// See [`non_negative`].
    #[derive(Copy, Default, Eq)]
    NonNegative as "projection_non_negative" over elements {}
}

impl ElementSet for NonNegative {
    fn numbers(&self, _: u64) -> [f64; 2] {
        [0.0, f64::INFINITY]
    }
}
