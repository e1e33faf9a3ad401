use super::interval::sigmoid;
use super::range::open;
use crate::Result;
use crate::internal::state::{ConstrainedLeaf, Constraint};

/// Keeps each element more than 0, by softplus: close to the raw number if that is large.
///
/// # Arithmetic
///
/// ```text
/// x = ln(1 + eʳ)
/// r̄ = x̄·σ(r)          σ(r) = 1/(1 + e⁻ʳ)
/// r = x + ln(1 − e⁻ˣ)
/// ```
///
/// An `x` that would round to 0 is the smallest number of the leaf's dtype, and an infinite one the largest.
///
/// # Errors
///
/// Fails, for given values, if one is not positive and finite.
///
/// # Example
///
/// ```
/// use gradchain::constraint::{Constraints, positive};
///
/// let raw = Constraints::new().at("", positive()).unconstrain(&vec![1e-30_f64, 1.0, 1e30])?;
/// for (x, expected) in raw.constrain()?.iter().zip([1e-30, 1.0, 1e30]) {
///     approx::assert_relative_eq!(*x, expected, max_relative = 1e-13);
/// }
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Dugas, Bengio, Bélisle, Nadeau and Garcia, [Incorporating second-order functional knowledge for better option
/// pricing](https://papers.nips.cc/paper/1920), 2000. Differs: 0 is not reached by rounding.
pub fn positive() -> Positive {
    Positive::Softplus
}

/// Keeps each element more than 0, by the exponential function: additive raw steps multiply the element.
///
/// # Arithmetic
///
/// ```text
/// x = eʳ
/// r̄ = x̄·x
/// r = ln x
/// ```
///
/// An `x` that would round to 0 is the smallest number of the leaf's dtype, and an infinite one the largest.
///
/// # Errors
///
/// As [`positive`].
///
/// # Example
///
/// ```
/// use gradchain::constraint::{Constraints, positive_exp};
/// use gradchain::prelude::*;
///
/// let mut raw = Constraints::new().at("", positive_exp()).unconstrain(&1.0_f64)?;
/// let optimizer = sgd(2.0_f64.ln());
/// let mut state = optimizer.init(&raw)?;
/// let gradient = raw.pull_back(1.0)?;
/// optimizer.step(&mut raw, &gradient, &mut state)?;
/// assert_eq!(*raw.constrain()?, 0.5);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Stan Reference Manual, [lower bounded scalar](https://mc-stan.org/docs/reference-manual/transforms.html). Differs: 0
/// and infinity are not reached by rounding.
pub fn positive_exp() -> Positive {
    Positive::Exp
}

/// See [`positive`] and [`positive_exp`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use = "a constraint does nothing until `Constraints` assigns it to leaves"]
#[non_exhaustive]
pub enum Positive {
    /// Softplus, `ln(1 + eʳ)`.
    Softplus,
    /// The exponential function.
    Exp,
}

impl Positive {
    fn value(self, r: f64) -> f64 {
        match self {
            Positive::Softplus => r.max(0.0) + (-r.abs()).exp().ln_1p(),
            Positive::Exp => r.exp(),
        }
    }

    fn slope(self, r: f64) -> f64 {
        match self {
            Positive::Softplus => sigmoid(r),
            // Finite, because zero gradients times infinity are NaN.
            Positive::Exp => r.exp().min(f64::MAX),
        }
    }

    fn inverse(self, x: f64) -> f64 {
        match self {
            Positive::Softplus => x + (-(-x).exp_m1()).ln(),
            Positive::Exp => x.ln(),
        }
    }
}

impl Constraint for Positive {
    fn constrain(&self, leaf: &ConstrainedLeaf<'_>, raw: &[f64], to: &mut [f64]) -> Result<()> {
        let (least, most) = open(leaf.dtype(), 0.0, f64::INFINITY).unwrap_or((f64::MIN_POSITIVE, f64::MAX));
        to.iter_mut().zip(raw).for_each(|(to, r)| *to = self.value(*r).clamp(least, most));
        Ok(())
    }

    fn pull_back(&self, _: &ConstrainedLeaf<'_>, raw: &[f64], gradient: &[f64], to: &mut [f64]) -> Result<()> {
        to.iter_mut().zip(raw).zip(gradient).for_each(|((to, r), g)| *to = g * self.slope(*r));
        Ok(())
    }

    fn unconstrain(&self, leaf: &ConstrainedLeaf<'_>, values: &[f64], to: &mut [f64]) -> Result<()> {
        for (i, (to, x)) in to.iter_mut().zip(values).enumerate() {
            if !(*x > 0.0 && x.is_finite()) {
                return Err(leaf.refuse_element(i, "positive and finite", x));
            }
            *to = self.inverse(*x);
        }
        Ok(())
    }
}
