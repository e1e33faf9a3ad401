use super::range::open;
use crate::internal::state::{ConstrainedLeaf, Constraint, Part};
use crate::{Error, Result};

/// Keeps each element strictly between two bounds, by a sigmoid.
///
/// # Arithmetic
///
/// ```text
/// x = lower·σ(−r) + upper·σ(r)          σ(r) = 1/(1 + e⁻ʳ)
/// r̄ = x̄·(upper − lower)·σ(r)·σ(−r)
/// r = ln((x − lower)/(upper − x))
/// ```
///
/// An `x` that would round to a bound becomes the neighbouring number of the leaf's dtype: a probability is never
/// exactly 0 or 1. Its derivative is that of the sigmoid, small but nonzero until `r` is beyond ±745, so the element
/// can still leave.
///
/// # Errors
///
/// Fails if the bounds are not finite and in order, or the leaf's dtype has no number between them; for given values,
/// if one is not between the bounds.
///
/// # Example
///
/// ```
/// use gradchain::constraint::{Constraints, interval};
///
/// let probability = Constraints::new().at("", interval(0.0, 1.0));
/// let raw = probability.unconstrain(&vec![0.5_f32, 0.75])?;
/// assert_eq!(*raw.constrain()?, [0.5, 0.75]);
///
/// let error = probability.unconstrain(&vec![0.5_f32, 1.0]).unwrap_err();
/// assert_eq!(error.to_string(), "unconstrain: argument `(root)[1]` must be strictly between 0 and 1, found 1");
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Stan Reference Manual, [lower and upper bounded scalar](https://mc-stan.org/docs/reference-manual/transforms.html).
/// Differs: bounds are not reached by rounding.
pub fn interval(lower: f64, upper: f64) -> Interval {
    Interval { lower, upper }
}

/// See [`interval`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use = "a constraint does nothing until `Constraints` assigns it to leaves"]
#[non_exhaustive]
pub struct Interval {
    /// Exclusive lower bound of every element.
    pub lower: f64,
    /// Exclusive upper bound of every element.
    pub upper: f64,
}

impl Interval {
    /// Returns the least and largest number of the leaf's dtype between the bounds.
    fn range(&self, leaf: &ConstrainedLeaf<'_>) -> Result<(f64, f64)> {
        let Interval { lower, upper } = *self;
        let found = || format!("({lower}, {upper})");
        if !(lower.is_finite() && upper.is_finite() && lower < upper) {
            return Err(Error::argument("interval", "bounds", "finite and in ascending order", found()));
        }
        let none = || format!("bounds with a number of type {} between them", leaf.dtype());
        open(leaf.dtype(), lower, upper).ok_or_else(|| Error::argument("interval", "bounds", &none(), found()))
    }
}

impl Constraint for Interval {
    fn parts(&self, leaf: &ConstrainedLeaf<'_>) -> Result<Vec<Part>> {
        self.range(leaf)?;
        Ok(vec![Part::new("raw", leaf.shape())])
    }

    fn constrain(&self, leaf: &ConstrainedLeaf<'_>, raw: &[f64], to: &mut [f64]) -> Result<()> {
        let (least, most) = self.range(leaf)?;
        for (to, r) in to.iter_mut().zip(raw) {
            // A mean of the bounds: unlike `lower + (upper − lower)·σ`, exact at both ends.
            *to = (self.lower * sigmoid(-r) + self.upper * sigmoid(*r)).clamp(least, most);
        }
        Ok(())
    }

    fn pull_back(&self, _: &ConstrainedLeaf<'_>, raw: &[f64], gradient: &[f64], to: &mut [f64]) -> Result<()> {
        for ((to, r), g) in to.iter_mut().zip(raw).zip(gradient) {
            let slope = sigmoid(*r) * sigmoid(-r);
            *to = g * (self.upper * slope - self.lower * slope);
        }
        Ok(())
    }

    fn unconstrain(&self, leaf: &ConstrainedLeaf<'_>, values: &[f64], to: &mut [f64]) -> Result<()> {
        let Interval { lower, upper } = *self;
        // Halved if the distance between the bounds overflows.
        let unit = if (upper - lower).is_finite() { 1.0 } else { 0.5 };
        for (i, (to, x)) in to.iter_mut().zip(values).enumerate() {
            if !(*x > lower && *x < upper) {
                return Err(leaf.refuse_element(i, &format!("strictly between {lower} and {upper}"), x));
            }
            let (below, beyond) = (unit * x - unit * lower, unit * upper - unit * x);
            // The logarithm of the quotient would overflow for the smallest numbers.
            let quotient = below / beyond;
            *to = if quotient.is_normal() { quotient.ln() } else { below.ln() - beyond.ln() };
        }
        Ok(())
    }
}

/// Returns `1/(1 + e⁻ʳ)`, with all digits at both ends.
pub(super) fn sigmoid(r: f64) -> f64 {
    let small = (-r.abs()).exp();
    if r >= 0.0 { 1.0 / (1.0 + small) } else { small / (1.0 + small) }
}
