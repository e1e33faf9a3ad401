use super::set::{TreeSet, projection};
use super::vector::Vector;
use crate::internal::numeric::sum_tile;
use crate::part::prelude::*;
use crate::tree::TreeMut;

/// Projects a tree, as one vector, onto the simplex: no negative element, and the sum `scale`.
///
/// With a `scale` of 1 that is the nearest probability distribution.
///
/// # Arithmetic
///
/// ```text
/// x ← max(x − τ, 0)          τ such that the sum is scale
/// ```
///
/// Newton's method finds `τ` on the sum, a convex and piecewise linear function of it, from below, and ends on the
/// exact piece. Elements are taken relative to the largest, so that a much smaller `scale` loses no digits. An element
/// that is not finite makes all of them NaN.
///
/// # Cost
///
/// Usually three to ten passes; each quarters the product of the remaining error and the number of elements that share
/// it, so that at most about `log₂ n + 30` are needed. No sorting and no allocation.
///
/// # Errors
///
/// Fails, with nothing changed, if `scale` is negative or not finite. A tree without elements is left alone.
///
/// # Example
///
/// ```
/// use gradchain::projection::projection_simplex;
///
/// let mut tree = (vec![0.75_f32, -3.0], 0.75_f64);
/// projection_simplex(&mut tree, 1.0)?;
/// assert_eq!(tree, (vec![0.5, 0.0], 0.5));
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Condat, [Fast projection onto the simplex and the l1 ball](https://doi.org/10.1007/s10107-015-0946-6), 2016, which
/// compares algorithms; this is Michelot's, 1986, with a better start. Optax,
/// [`projection_simplex`](https://optax.readthedocs.io/en/latest/api/projections.html), which sorts, and whose `scale`
/// defaults to 1. Differs: in place; a `scale` of 0 gives zeros instead of NaN, a negative one is refused.
pub fn projection_simplex<T: TreeMut + ?Sized>(tree: &mut T, scale: f64) -> Result<()> {
    super::Projection::project(&simplex(scale), tree)
}

/// Returns the set of all points without a negative element whose sum is `scale`; see [`projection_simplex`].
pub fn simplex(scale: impl IntoHyperparam) -> Simplex {
    Simplex::with(scale)
}

projection! {
    /// See [`simplex`].
    Simplex as "projection_simplex" over tree {
        /// The sum.
        scale: Hyperparam in NOT_NEGATIVE;
    }
}

impl TreeSet for Simplex {
    fn move_to(&self, count: u64, x: &mut dyn Vector) {
        let threshold = SoftThreshold::new(x, |x| x, self.scale.at(count));
        x.map(|x| threshold.rest(x));
    }
}

/// The amount subtracted from all elements, so that the positive remainders have a given sum.
pub(super) struct SoftThreshold {
    /// The largest element, and the amount beyond it, apart to keep small remainders exact.
    largest: f64,
    beyond: f64,
}

impl SoftThreshold {
    pub(super) fn new(x: &mut dyn Vector, f: impl Fn(f64) -> f64, sum: f64) -> SoftThreshold {
        let largest = x.max(&f);
        let below = |x: f64| f(x) - largest;
        // Two lower bounds of the exact cut: one element has the whole sum, or all share it.
        let from_all = (x.sum(below) - sum) / x.elements() as f64;
        let mut beyond = if from_all > -sum || from_all.is_nan() { from_all } else { -sum };
        let mut last: Option<f64> = None;
        loop {
            let (rests, count) = rests(x, |x| below(x) - beyond);
            if count == 0.0 {
                return SoftThreshold { largest, beyond };
            }
            beyond += (rests - sum) / count;
            // In exact arithmetic the cut only rises. Once the count stops falling, rounding could alternate between
            // two counts without end.
            if last.replace(count).is_some_and(|before| count >= before) {
                return SoftThreshold { largest, beyond };
            }
        }
    }

    pub(super) fn rest(&self, x: f64) -> f64 {
        let rest = x - self.largest - self.beyond;
        if rest < 0.0 { 0.0 } else { rest }
    }
}

/// Returns the sum and the number of positive remainders.
fn rests(x: &mut dyn Vector, rest: impl Fn(f64) -> f64) -> (f64, f64) {
    let (mut sum, mut count) = (0.0, 0.0);
    x.read(&mut |x, _| {
        sum += sum_tile(x, |x| rest(x).max(0.0));
        count += sum_tile(x, |x| if rest(x) > 0.0 { 1.0 } else { 0.0 });
    });
    (sum, count)
}
