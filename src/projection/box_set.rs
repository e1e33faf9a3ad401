use super::operand::{Operand, TreeValues};
use super::set::{ElementSet, Set, projection};
use crate::tree::TreeMut;
use crate::{Error, Result};

/// Clamps each element to two bounds: the projection onto a box.
///
/// Each bound is a number, or a tree with the same leaves, each with as many elements or one.
///
/// # Arithmetic
///
/// ```text
/// x ← min(max(x, lower), upper)          a NaN stays NaN
/// ```
///
/// # Cost
///
/// One pass; bounds that are trees are copied as `f64`.
///
/// # Errors
///
/// Fails, with nothing changed, if a bound is NaN, an upper one is less than the lower one, or a bound that is a tree
/// does not fit.
///
/// # Example
///
/// ```
/// use gradchain::projection::projection_box;
///
/// let mut tree = (vec![1.0_f32, -2.0], 3.0_f64);
/// projection_box(&mut tree, -1.0, &(vec![0.5_f32, 0.5], f64::INFINITY))?;
/// assert_eq!(tree, (vec![0.5, -1.0], 3.0));
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Optax, [`projection_box`](https://optax.readthedocs.io/en/latest/api/projections.html). Differs: in place; numbers
/// are accepted for any tree; an empty box, whose bounds cross, is refused instead of giving `upper`.
pub fn projection_box<T: TreeMut + ?Sized>(
    tree: &mut T,
    lower: impl Into<Operand>,
    upper: impl Into<Operand>,
) -> Result<()> {
    super::Projection::project(&box_set(lower, upper), tree)
}

/// Returns the set of all points between two bounds, numbers or trees; see [`projection_box`].
pub fn box_set(lower: impl Into<Operand>, upper: impl Into<Operand>) -> BoxSet {
    BoxSet::with(lower, upper)
}

projection! {
    /// See [`box_set`].
    BoxSet as "projection_box" over elements {
        /// The lower bounds.
        lower: Operand in NUMBER;
        /// The upper bounds, at least `lower` everywhere.
        upper: Operand in NUMBER;
    }
    check Self::check_order;
}

impl BoxSet {
    fn check_order(&self) -> Result<()> {
        match (self.lower.fixed(), self.upper.fixed()) {
            (Some(lower), Some(upper)) if lower > upper => {
                Err(Error::argument(Self::NAME, "upper", &format!("at least the lower bound of {lower}"), upper))
            }
            _ => Ok(()),
        }
    }
}

impl ElementSet for BoxSet {
    fn numbers(&self, count: u64) -> [f64; 2] {
        [&self.lower, &self.upper].map(|bound| bound.number(count).unwrap_or(f64::NAN))
    }

    fn trees(&self) -> [Option<(&'static str, &TreeValues)>; 2] {
        [("lower", &self.lower), ("upper", &self.upper)].map(|(name, bound)| Some((name, bound.tree()?)))
    }
}
