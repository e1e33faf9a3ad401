use super::matrices::{read_symmetric, row, square, triangles};
use crate::Result;
use crate::internal::state::{ConstrainedLeaf, Constraint, Part};

/// Keeps matrices symmetric: the raw numbers are those of the lower triangle.
///
/// # Arithmetic
///
/// For each matrix `X` in the last two axes; the `n(n + 1)/2` raw numbers of each are its lower triangle, row after
/// row:
///
/// ```text
/// Xᵢⱼ = Xⱼᵢ = rᵢⱼ                 i ≥ j
/// r̄ᵢⱼ = X̄ᵢⱼ + X̄ⱼᵢ,  r̄ᵢᵢ = X̄ᵢᵢ
/// ```
///
/// # Errors
///
/// Fails if the leaf has fewer than two axes, or the last two differ in length; for given values, if two mirrored
/// elements differ by more than rounding. Their mean is taken.
///
/// # Example
///
/// ```
/// use gradchain::constraint::{Constraints, symmetric};
/// use ndarray::array;
///
/// let constraints = Constraints::new().at("", symmetric());
/// let raw = constraints.unconstrain(&array![[1.0_f64, 2.0], [2.0, 3.0]])?;
/// assert_eq!(*raw.constrain()?, array![[1.0, 2.0], [2.0, 3.0]]);
/// let gradient = raw.pull_back(array![[1.0_f64, 10.0], [5.0, 1.0]])?;
/// gradchain::tree::for_each_leaf(&gradient, |_, leaf| assert_eq!(leaf.to_f64(), [1.0, 15.0, 1.0]));
///
/// let error = constraints.unconstrain(&array![[1.0_f64, 2.0], [2.5, 3.0]]).unwrap_err();
/// assert_eq!(error.to_string(), "unconstrain: argument `(root)[1, 0]` must be 2, the mirrored element, found 2.5");
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// PyTorch's tutorial on [parametrizations](https://pytorch.org/tutorials/intermediate/parametrizations.html). Differs:
/// no raw number is without effect.
pub fn symmetric() -> Symmetric {
    Symmetric
}

/// See [`symmetric`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use = "a constraint does nothing until `Constraints` assigns it to leaves"]
pub struct Symmetric;

impl Constraint for Symmetric {
    fn parts(&self, leaf: &ConstrainedLeaf<'_>) -> Result<Vec<Part>> {
        triangles(leaf)
    }

    fn constrain(&self, leaf: &ConstrainedLeaf<'_>, raw: &[f64], to: &mut [f64]) -> Result<()> {
        let n = square(leaf)?;
        for (raw, to) in raw.chunks_exact(row(n)).zip(to.chunks_exact_mut(n * n)) {
            for i in 0..n {
                for j in 0..=i {
                    to[i * n + j] = raw[row(i) + j];
                    to[j * n + i] = raw[row(i) + j];
                }
            }
        }
        Ok(())
    }

    fn pull_back(&self, leaf: &ConstrainedLeaf<'_>, _: &[f64], gradient: &[f64], to: &mut [f64]) -> Result<()> {
        let n = square(leaf)?;
        for (gradient, to) in gradient.chunks_exact(n * n).zip(to.chunks_exact_mut(row(n))) {
            for i in 0..n {
                (0..i).for_each(|j| to[row(i) + j] = gradient[i * n + j] + gradient[j * n + i]);
                to[row(i) + i] = gradient[i * n + i];
            }
        }
        Ok(())
    }

    fn unconstrain(&self, leaf: &ConstrainedLeaf<'_>, values: &[f64], to: &mut [f64]) -> Result<()> {
        let n = square(leaf)?;
        for (k, (values, to)) in values.chunks_exact(n * n).zip(to.chunks_exact_mut(row(n))).enumerate() {
            read_symmetric(leaf, k * n * n, n, values, to)?;
        }
        Ok(())
    }
}
