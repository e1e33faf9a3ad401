use super::lanes::along;
use super::range::slack;
use crate::Result;
use crate::internal::numeric::{sum_pairs, sum_tile};
use crate::internal::state::{ConstrainedLeaf, Constraint, Part};

/// Keeps the elements along an axis positive with the sum 1, by softmax: mixture weights, probabilities of outcomes.
///
/// # Arithmetic
///
/// For each vector `x` along the axis, by default the last; [`axis`](Simplex::axis) sets another:
///
/// ```text
/// xᵢ = e^rᵢ / Σ e^rⱼ
/// r̄ᵢ = xᵢ·(x̄ᵢ − Σ xⱼ·x̄ⱼ)
/// rᵢ = ln xᵢ − mean ln xⱼ
/// ```
///
/// Each element has a raw number, one more than needed, so that all outcomes are alike: with one fewer, as in
/// stick-breaking, their order would matter to an adaptive optimizer. Raw gradients have the sum 0. An element smaller
/// than the smallest number of its dtype is 0.
///
/// # Errors
///
/// Fails if the leaf has no such axis, or one of length 0; for given values, if one is not positive, or a sum is not 1
/// up to rounding.
///
/// # Example
///
/// ```
/// use gradchain::constraint::{Constraints, simplex};
/// use ndarray::array;
///
/// let raw = Constraints::new().at("", simplex()).unconstrain(&array![[0.25_f64, 0.25, 0.5], [0.125, 0.125, 0.75]])?;
/// approx::assert_relative_eq!(raw.constrain()?[[1, 2]], 0.75, max_relative = 1e-14);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Stan Reference Manual, [unit simplex](https://mc-stan.org/docs/reference-manual/transforms.html). Differs: softmax
/// of as many raw numbers as elements.
pub fn simplex() -> Simplex {
    Simplex { axis: None }
}

/// See [`simplex`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use = "a constraint does nothing until `Constraints` assigns it to leaves"]
pub struct Simplex {
    axis: Option<usize>,
}

impl Simplex {
    /// Sets the axis of the sums, instead of the last.
    pub fn axis(mut self, axis: usize) -> Simplex {
        self.axis = Some(axis);
        self
    }
}

/// Computes softmax in place, relative to the largest to avoid overflow.
fn softmax(vector: &mut [f64]) {
    let largest = vector.iter().fold(f64::NEG_INFINITY, |most, r| most.max(*r));
    vector.iter_mut().for_each(|r| *r = (*r - largest).exp());
    let total = sum_tile(vector, |x: f64| x);
    vector.iter_mut().for_each(|x| *x /= total);
}

impl Constraint for Simplex {
    fn parts(&self, leaf: &ConstrainedLeaf<'_>) -> Result<Vec<Part>> {
        along(leaf, self.axis).map(|_| vec![Part::new("raw", leaf.shape())])
    }

    fn constrain(&self, leaf: &ConstrainedLeaf<'_>, raw: &[f64], to: &mut [f64]) -> Result<()> {
        let mut x = Vec::new();
        for lane in along(leaf, self.axis)? {
            lane.read(raw, &mut x);
            softmax(&mut x);
            lane.write(&x, to);
        }
        Ok(())
    }

    fn pull_back(&self, leaf: &ConstrainedLeaf<'_>, raw: &[f64], gradient: &[f64], to: &mut [f64]) -> Result<()> {
        let (mut x, mut g) = (Vec::new(), Vec::new());
        for lane in along(leaf, self.axis)? {
            lane.read(raw, &mut x);
            lane.read(gradient, &mut g);
            softmax(&mut x);
            let mean = sum_pairs(&x, &g, |x: f64, g| x * g);
            g.iter_mut().zip(&x).for_each(|(g, x)| *g = x * (*g - mean));
            lane.write(&g, to);
        }
        Ok(())
    }

    fn unconstrain(&self, leaf: &ConstrainedLeaf<'_>, values: &[f64], to: &mut [f64]) -> Result<()> {
        if let Some(i) = values.iter().position(|x| !(*x > 0.0 && x.is_finite())) {
            return Err(leaf.refuse_element(i, "positive (0 is only the limit of a softmax)", values[i]));
        }
        let mut x = Vec::new();
        for lane in along(leaf, self.axis)? {
            lane.read(values, &mut x);
            let total = sum_tile(&x, |x: f64| x);
            if (total - 1.0).abs() > slack(leaf.dtype(), x.len()) {
                return Err(leaf.refuse_element(lane.start, "the first element of a vector with sum 1", total));
            }
            x.iter_mut().for_each(|x| *x = x.ln());
            let mean = sum_tile(&x, |x: f64| x) / x.len() as f64;
            x.iter_mut().for_each(|x| *x -= mean);
            lane.write(&x, to);
        }
        Ok(())
    }
}
