use super::matrices::{read_symmetric, row, square, triangles};
use crate::Result;
use crate::internal::numeric::{sum_pairs, sum_tile};
use crate::internal::state::{ConstrainedLeaf, Constraint, Part};

/// Keeps matrices symmetric and positive definite, by their Cholesky factors: covariances, precisions, metrics.
///
/// # Arithmetic
///
/// For each matrix `X` in the last two axes; the `n(n + 1)/2` raw numbers of each are a lower triangle, row after row:
///
/// ```text
/// X = L·Lᵀ            Lᵢⱼ = rᵢⱼ below the diagonal, Lᵢᵢ = e^rᵢᵢ
/// L̄ = (X̄ + X̄ᵀ)·L
/// r̄ᵢⱼ = L̄ᵢⱼ,  r̄ᵢᵢ = L̄ᵢᵢ·Lᵢᵢ
/// ```
///
/// The exponential function makes the factor unique. Rounding can make a nearly singular matrix singular, as for all
/// matrices of its dtype.
///
/// # Cost
///
/// `n³/6` multiplications each to constrain and to unconstrain, `n³/3` to pull back.
///
/// # Errors
///
/// Fails if the leaf lacks the last two axes or they differ in length; if the matrix overflows its dtype; for given
/// values, if the matrix is not symmetric up to rounding, or not positive definite: the message has the pivot that is
/// not positive.
///
/// # Example
///
/// ```
/// use gradchain::constraint::{Constraints, positive_definite};
/// use ndarray::array;
///
/// let constraints = Constraints::new().at("", positive_definite());
/// let raw = constraints.unconstrain(&array![[4.0_f64, 2.0], [2.0, 5.0]])?;
/// // The factor is [[2, 0], [1, 2]].
/// gradchain::tree::for_each_leaf(&raw, |_, leaf| assert_eq!(leaf.to_f64(), [2.0_f64.ln(), 1.0, 2.0_f64.ln()]));
///
/// let error = constraints.unconstrain(&array![[1.0_f64, 2.0], [2.0, 1.0]]).unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "unconstrain: argument `(root)[1, 1]` must be of a positive definite matrix, found a pivot of -3"
/// );
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Pinheiro and Bates, [Unconstrained parametrizations for variance-covariance
/// matrices](https://doi.org/10.1007/BF00140873), 1996, log-Cholesky. Differs: none.
pub fn positive_definite() -> PositiveDefinite {
    PositiveDefinite
}

/// See [`positive_definite`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use = "a constraint does nothing until `Constraints` assigns it to leaves"]
pub struct PositiveDefinite;

/// Returns the Cholesky factor, whose raw diagonal is logarithmic.
fn factor(n: usize, raw: &[f64]) -> Vec<f64> {
    let mut factor = raw.to_vec();
    for i in 0..n {
        let diagonal = &mut factor[row(i) + i];
        *diagonal = diagonal.exp().clamp(f64::MIN_POSITIVE, f64::MAX);
    }
    factor
}

impl Constraint for PositiveDefinite {
    fn parts(&self, leaf: &ConstrainedLeaf<'_>) -> Result<Vec<Part>> {
        triangles(leaf)
    }

    fn constrain(&self, leaf: &ConstrainedLeaf<'_>, raw: &[f64], to: &mut [f64]) -> Result<()> {
        let n = square(leaf)?;
        for (raw, to) in raw.chunks_exact(row(n)).zip(to.chunks_exact_mut(n * n)) {
            let l = factor(n, raw);
            for i in 0..n {
                for j in 0..=i {
                    let x = sum_pairs(&l[row(i)..][..=j], &l[row(j)..][..=j], |a: f64, b| a * b);
                    to[i * n + j] = x;
                    to[j * n + i] = x;
                }
            }
        }
        Ok(())
    }

    fn pull_back(&self, leaf: &ConstrainedLeaf<'_>, raw: &[f64], gradient: &[f64], to: &mut [f64]) -> Result<()> {
        let n = square(leaf)?;
        let matrices = raw.chunks_exact(row(n)).zip(gradient.chunks_exact(n * n));
        for ((raw, g), to) in matrices.zip(to.chunks_exact_mut(row(n))) {
            let l = factor(n, raw);
            for i in 0..n {
                let to = &mut to[row(i)..][..=i];
                for k in 0..n {
                    let both = g[i * n + k] + g[k * n + i];
                    to.iter_mut().zip(&l[row(k)..][..=k]).for_each(|(to, l)| *to += both * l);
                }
                to[i] *= l[row(i) + i];
            }
        }
        Ok(())
    }

    fn unconstrain(&self, leaf: &ConstrainedLeaf<'_>, values: &[f64], to: &mut [f64]) -> Result<()> {
        let n = square(leaf)?;
        for (k, (values, l)) in values.chunks_exact(n * n).zip(to.chunks_exact_mut(row(n))).enumerate() {
            read_symmetric(leaf, k * n * n, n, values, l)?;
            for i in 0..n {
                let (before, current) = l.split_at_mut(row(i));
                for j in 0..i {
                    let other = &before[row(j)..][..=j];
                    let known = sum_pairs(&current[..j], &other[..j], |a: f64, b| a * b);
                    current[j] = (current[j] - known) / other[j];
                }
                let pivot = current[i] - sum_tile(&current[..i], |x: f64| x * x);
                if !(pivot > 0.0 && pivot.is_finite()) {
                    let place = k * n * n + i * n + i;
                    return Err(leaf.refuse_element(
                        place,
                        "of a positive definite matrix",
                        format!("a pivot of {pivot}"),
                    ));
                }
                current[i] = pivot.sqrt();
            }
            (0..n).for_each(|i| l[row(i) + i] = l[row(i) + i].ln());
        }
        Ok(())
    }
}
