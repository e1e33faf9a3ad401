//! Bounds for parts that choose the points where the loss is evaluated.

use crate::element::Real;
use crate::state::Moments;

/// The bounds of each element, in the memory order and compute type of the state's arrays. Each bound is representable
/// in the leaf's dtype.
#[derive(Clone, Debug)]
pub struct Bounds {
    #[doc(hidden)]
    pub lower: Moments,
    #[doc(hidden)]
    pub upper: Moments,
}

impl Bounds {
    #[doc(hidden)]
    pub fn leaf<C: Real>(&self, leaf: usize) -> Option<impl Iterator<Item = [C; 2]> + '_> {
        let (lower, upper) = (self.lower.get::<C>(leaf)?, self.upper.get::<C>(leaf)?);
        Some(lower.iter().zip(upper).map(|(lower, upper)| [*lower, *upper]))
    }
}

/// Returns true if a move from `x` in `direction` leaves the bounds.
pub fn is_blocked<C: Real>(x: C, direction: C, [lower, upper]: [C; 2]) -> bool {
    (direction < C::zero() && x <= lower) || (direction > C::zero() && x >= upper)
}

/// Clamps to the bounds; NaN stays NaN.
pub fn clamp<C: Real>(x: C, [lower, upper]: [C; 2]) -> C {
    if x < lower {
        lower
    } else if x > upper {
        upper
    } else {
        x
    }
}
