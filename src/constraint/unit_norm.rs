use super::lanes::{along, normalize};
use super::range::slack;
use crate::Result;
use crate::internal::numeric::sum_pairs;
use crate::internal::state::{ConstrainedLeaf, Constraint, Part};

/// Keeps the vectors along an axis at norm 1: directions, normalized embeddings.
///
/// # Arithmetic
///
/// For each vector `x` along the axis, by default the last; [`axis`](UnitNorm::axis) sets another:
///
/// ```text
/// x = r/‖r‖
/// r̄ = (x̄ − x·⟨x, x̄⟩)/‖r‖
/// r = x
/// ```
///
/// Raw gradients are orthogonal to the raw vector, so plain gradient steps increase its norm, and the next raw
/// gradients become smaller.
///
/// # Errors
///
/// Fails if the leaf has no such axis, or one of length 0; if a raw vector is zero, which has no direction; for given
/// values, if a vector's norm is not 1 up to rounding.
///
/// # Example
///
/// ```
/// use gradchain::constraint::{Constraints, unit_norm};
///
/// let directions = Constraints::new().at("", unit_norm());
/// let raw = directions.unconstrain(&vec![0.6_f64, -0.8])?;
/// // A gradient along the vector does not turn it.
/// let gradient = raw.pull_back(vec![0.6_f64, -0.8])?;
/// assert!(gradchain::tree::tree_norm(&gradient) < 1e-15);
///
/// let error = directions.unconstrain(&vec![3.0_f64, 4.0]).unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "unconstrain: argument `(root)[0]` must be the first element of a vector with norm 1, found 5"
/// );
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Stan Reference Manual, [unit vector](https://mc-stan.org/docs/reference-manual/transforms.html). Differs: none.
pub fn unit_norm() -> UnitNorm {
    UnitNorm { axis: None }
}

/// See [`unit_norm`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use = "a constraint does nothing until `Constraints` assigns it to leaves"]
pub struct UnitNorm {
    axis: Option<usize>,
}

impl UnitNorm {
    /// Sets the axis of the vectors, instead of the last.
    pub fn axis(mut self, axis: usize) -> UnitNorm {
        self.axis = Some(axis);
        self
    }
}

const DIRECTED: &str = "the first element of a nonzero raw vector (zeros have no direction)";

impl Constraint for UnitNorm {
    fn parts(&self, leaf: &ConstrainedLeaf<'_>) -> Result<Vec<Part>> {
        along(leaf, self.axis).map(|_| vec![Part::new("raw", leaf.shape())])
    }

    fn constrain(&self, leaf: &ConstrainedLeaf<'_>, raw: &[f64], to: &mut [f64]) -> Result<()> {
        let mut x = Vec::new();
        for lane in along(leaf, self.axis)? {
            lane.read(raw, &mut x);
            normalize(&mut x).ok_or_else(|| leaf.refuse_element(lane.start, DIRECTED, 0))?;
            lane.write(&x, to);
        }
        Ok(())
    }

    fn pull_back(&self, leaf: &ConstrainedLeaf<'_>, raw: &[f64], gradient: &[f64], to: &mut [f64]) -> Result<()> {
        let (mut x, mut g) = (Vec::new(), Vec::new());
        for lane in along(leaf, self.axis)? {
            lane.read(raw, &mut x);
            lane.read(gradient, &mut g);
            let length = normalize(&mut x).ok_or_else(|| leaf.refuse_element(lane.start, DIRECTED, 0))?;
            let along = sum_pairs(&x, &g, |x: f64, g| x * g);
            g.iter_mut().zip(&x).for_each(|(g, x)| *g = length.divide(*g - x * along));
            lane.write(&g, to);
        }
        Ok(())
    }

    fn unconstrain(&self, leaf: &ConstrainedLeaf<'_>, values: &[f64], to: &mut [f64]) -> Result<()> {
        if let Some(i) = values.iter().position(|x| !x.is_finite()) {
            return Err(leaf.refuse_element(i, "finite", values[i]));
        }
        let mut x = Vec::new();
        for lane in along(leaf, self.axis)? {
            lane.read(values, &mut x);
            let length = normalize(&mut x).map_or(0.0, |length| length.value());
            if (length - 1.0).abs() > slack(leaf.dtype(), lane.len()) {
                return Err(leaf.refuse_element(lane.start, "the first element of a vector with norm 1", length));
            }
        }
        to.copy_from_slice(values);
        Ok(())
    }
}
