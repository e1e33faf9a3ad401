use ndarray::Array2;

use super::flat_point::{name, place};
use super::hessian::Hessian;
use crate::internal::state::leaves_mut;
use crate::tree::{Structure, TreeMut};
use crate::{Error, Result};

/// The covariance of parameters, the inverse of a [`Hessian`].
///
/// # Example
///
/// The mean of four measurements with a known error of 2 each, by its likelihood `Σ (y − m)² / (2·2²)`:
///
/// ```
/// use gradchain::minimize::hessian;
///
/// let loss = |m: &f64| {
///     let residuals = [1.0, 3.0, 4.0, 8.0].map(|y| m - y);
///     (residuals.iter().map(|r| r * r / 8.0).sum::<f64>(), residuals.iter().map(|r| r / 4.0).sum::<f64>())
/// };
/// let error = hessian(&4.0, loss).run()?.covariance()?.standard_errors(&4.0)?;
/// approx::assert_relative_eq!(error, 1.0, max_relative = 1e-9); // 2 / √4
/// # Ok::<(), gradchain::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Covariance {
    structure: Structure,
    free: Vec<usize>,
    matrix: Array2<f64>,
}

/// Asymmetry above which a Hessian is refused.
const ASYMMETRIC: f64 = 0.01;

impl Covariance {
    pub(super) fn of(hessian: &Hessian) -> Result<Covariance> {
        const FUNCTION: &str = "covariance";
        let Hessian { structure, free, matrix, asymmetry: (asymmetry, [i, j]), noise } = hessian;
        let named = |row: usize| name(structure, free[row]);
        if let Some(row) = (0..free.len()).find(|&row| matrix[[row, row]] <= 0.0) {
            let expected = "a parameter with positive curvature, as at a minimum";
            return Err(Error::argument(
                FUNCTION,
                &named(row),
                expected,
                format!("a curvature of {:e}", matrix[[row, row]]),
            ));
        }
        if *asymmetry > ASYMMETRIC {
            let expected = "a parameter with symmetric second derivatives: its `typical_size` or the gradient is wrong \
                            (`check_gradient` tests the latter)";
            let found = format!("a relative asymmetry of {asymmetry:.1e} with `{}`", named(*j));
            return Err(Error::argument(FUNCTION, &named(*i), expected, found));
        }
        // Scaled to a unit diagonal, so that units do not matter.
        let scale: Vec<f64> = matrix.diag().iter().map(|curvature| curvature.sqrt().recip()).collect();
        let scaled = Array2::from_shape_fn(matrix.dim(), |(i, j)| scale[i] * matrix[[i, j]] * scale[j]);
        let factor = cholesky(&scaled, noise * free.len() as f64).map_err(|(row, left)| {
            let expected = "identifiable given the earlier parameters";
            let found =
                format!("{left:.1e} of its curvature of {:e} independent of the earlier ones", matrix[[row, row]]);
            Error::argument(FUNCTION, &named(row), expected, found)
        })?;
        let inverse = inverse(&factor);
        let matrix = Array2::from_shape_fn(matrix.dim(), |(i, j)| scale[i] * inverse[[i, j]] * scale[j]);
        Ok(Covariance { structure: structure.clone(), free: free.clone(), matrix })
    }

    /// Returns the matrix; [`names`](Self::names) identifies its rows.
    pub fn matrix(&self) -> &Array2<f64> {
        &self.matrix
    }

    /// Returns the element of each row: path and index.
    pub fn names(&self) -> Vec<String> {
        self.free.iter().map(|i| name(&self.structure, *i)).collect()
    }

    /// Multiplies the covariance by a factor.
    ///
    /// The factor is `2·s²` for a sum of squares, with `s²` the sum at the minimum divided by the degrees of freedom,
    /// and the dispersion for a quasi-likelihood.
    pub fn scaled(mut self, factor: f64) -> Covariance {
        self.matrix *= factor;
        self
    }

    /// Returns the correlations, with ones on the diagonal.
    pub fn correlation(&self) -> Array2<f64> {
        let variances = self.matrix.diag();
        Array2::from_shape_fn(self.matrix.dim(), |(i, j)| {
            if i == j { 1.0 } else { self.matrix[[i, j]] / (variances[i] * variances[j]).sqrt() }
        })
    }

    /// Returns the roots of the variances, in a tree like the parameters. Elements on a bound have none: they are NaN.
    ///
    /// # Errors
    ///
    /// Fails if the tree does not have the structure of the parameters.
    pub fn standard_errors<P: TreeMut + Clone>(&self, params: &P) -> Result<P> {
        let differences = self.structure.differences(params);
        if !differences.is_empty() {
            return Err(Error::structure("the parameters do not fit the covariance", differences));
        }
        let mut errors = params.clone();
        let mut values: Vec<Vec<f64>> = self.structure.leaves().iter().map(|leaf| vec![f64::NAN; leaf.len()]).collect();
        for (row, i) in self.free.iter().enumerate() {
            let (leaf, element) = place(&self.structure, *i);
            values[leaf][element] = self.matrix[[row, row]].sqrt();
        }
        leaves_mut(&mut errors).iter_mut().zip(&values).for_each(|(leaf, values)| leaf.assign_f64(values));
        Ok(errors)
    }
}

/// Returns the Cholesky factor `L` of a matrix with a unit diagonal.
///
/// The error is the first row whose remainder is at most `least`, and the remainder.
fn cholesky(matrix: &Array2<f64>, least: f64) -> Result<Array2<f64>, (usize, f64)> {
    let n = matrix.nrows();
    let mut factor = Array2::<f64>::zeros((n, n));
    for i in 0..n {
        for j in 0..=i {
            let before: f64 = (0..j).map(|k| factor[[i, k]] * factor[[j, k]]).sum();
            let left = matrix[[i, j]] - before;
            if i != j {
                factor[[i, j]] = left / factor[[j, j]];
            } else if left > least {
                factor[[i, i]] = left.sqrt();
            } else {
                return Err((i, left));
            }
        }
    }
    Ok(factor)
}

/// Returns the inverse of `L·Lᵀ`.
fn inverse(factor: &Array2<f64>) -> Array2<f64> {
    let n = factor.nrows();
    let mut columns = Array2::<f64>::zeros((n, n));
    for c in 0..n {
        // Solves `L·z = e_c`: z is a column of L⁻¹.
        for i in c..n {
            let before: f64 = (c..i).map(|k| factor[[i, k]] * columns[[k, c]]).sum();
            columns[[i, c]] = (f64::from(u8::from(i == c)) - before) / factor[[i, i]];
        }
    }
    columns.t().dot(&columns)
}
