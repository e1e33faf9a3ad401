use ndarray::Array2;

use super::covariance::Covariance;
use super::flat_point::{FlatPoint, epsilon, name, place};
use super::report::Evaluated;
use super::run::fallible;
use super::within::Within;
use crate::DType;
use crate::arguments::CheckRange as _;
use crate::projection::Operand;
use crate::range::POSITIVE;
use crate::tree::{Structure, TreeMut};
use crate::{Error, Result};

/// Computes the Hessian, the matrix of second derivatives, by central differences of the gradient.
///
/// Takes the same function as [`minimize`](crate::Minimize::minimize). At a minimum of a negative log-likelihood the
/// inverse is the [covariance](Hessian::covariance) of the parameters.
///
/// # Arithmetic
///
/// With the machine epsilon `ε` of the leaf's dtype, for each element `x_i`:
///
/// ```text
/// h_i  = ε^(1/3)·max(|x_i|, typical_size)
/// H_ij = (g_j(x + h_i) − g_j(x − h_i)) / 2·h_i          and then (H + Hᵀ)/2
/// ```
///
/// If `x ± h` would leave the bounds, three points on the inner side give a derivative of the same order. An element on
/// a bound is omitted: [`on_bounds`](Hessian::on_bounds) names it.
///
/// Defaults: `typical_size` 0.1, no bounds.
///
/// # Cost
///
/// 2 evaluations for each element, and one; a square matrix of `f64` with a row per element.
///
/// # Errors
///
/// [`run`](HessianAt::run) fails if a gradient is not finite, a typical size is not positive, or bounds do not fit;
/// otherwise with the error of the function.
///
/// # Example
///
/// ```
/// use gradchain::minimize::hessian;
///
/// let loss = |p: &[f64; 2]| {
///     (p[0] * p[0] + p[0] * p[1] + 3.0 * p[1] * p[1], [2.0 * p[0] + p[1], p[0] + 6.0 * p[1]])
/// };
/// let hessian = hessian(&[0.5, 0.0], loss).run()?;
/// let expected = ndarray::array![[2.0, 1.0], [1.0, 6.0]];
/// assert!((hessian.matrix() - &expected).iter().all(|difference| difference.abs() < 1e-8));
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Nocedal and Wright, Numerical Optimization, 1999, section 8.1. R, `optim(hessian = TRUE)`, whose steps are 1e-3 for
/// all parameters. statsmodels, `approx_hess`, takes differences of values. JAX: `jax.hessian`, exact. Differs: from
/// statsmodels, differences of gradients have half of the digits instead of a third.
pub fn hessian<P, F>(params: &P, f: F) -> HessianAt<'_, P, F> {
    HessianAt { params, f, typical_size: 0.1.into(), bounds: None }
}

/// See [`hessian`].
#[derive(Debug)]
#[must_use = "nothing is differentiated until `run` is called"]
pub struct HessianAt<'a, P, F> {
    params: &'a P,
    f: F,
    typical_size: Operand,
    bounds: Option<[Operand; 2]>,
}

/// Second derivatives with respect to the elements not held at a bound, computed by [`hessian`].
#[derive(Clone, Debug)]
pub struct Hessian {
    pub(super) structure: Structure,
    /// The element of each row.
    pub(super) free: Vec<usize>,
    pub(super) matrix: Array2<f64>,
    /// The largest difference between transposed derivatives, relative to both curvatures, and its rows.
    pub(super) asymmetry: (f64, [usize; 2]),
    /// Relative error bound of the curvatures.
    pub(super) noise: f64,
}

impl<P: TreeMut + Clone, F> HessianAt<'_, P, F> {
    /// Sets the typical size of parameters, a number or a tree. [Positive](POSITIVE).
    ///
    /// It is the scale of the step for a parameter that is 0 or close to it.
    pub fn typical_size(mut self, size: impl Into<Operand>) -> Self {
        self.typical_size = size.into();
        self
    }

    /// Keeps points within bounds, as [`Minimization::bounds`](super::Minimization::bounds) does.
    ///
    /// Elements on a bound are omitted.
    pub fn bounds(mut self, lower: impl Into<Operand>, upper: impl Into<Operand>) -> Self {
        self.bounds = Some([lower.into(), upper.into()]);
        self
    }

    /// Evaluates the gradient around the parameters.
    ///
    /// # Errors
    ///
    /// See [`hessian`](hessian#errors).
    pub fn run<R>(self) -> Result<Hessian, R::Error>
    where
        F: FnMut(&P) -> R,
        R: Evaluated,
    {
        const FUNCTION: &str = "hessian";
        let HessianAt { params, f, typical_size, bounds } = self;
        fallible(f, |f| {
            typical_size.check_range(FUNCTION, "typical_size", POSITIVE)?;
            let mut around = FlatPoint::new(params, f)?;
            let structure = around.structure.clone();
            let sizes = sizes(FUNCTION, &typical_size, &structure)?;
            let unbounded = [f64::NEG_INFINITY, f64::INFINITY];
            let bounds: Vec<[f64; 2]> = match &bounds {
                None => vec![unbounded; around.values.len()],
                Some([lower, upper]) => Within::new(FUNCTION, &structure, [lower, upper])?.elements().collect(),
            };
            let values = around.values.clone();
            for (i, (x, [lower, upper])) in values.iter().zip(&bounds).enumerate() {
                if x < lower || x > upper {
                    let expected = format!("within the bounds of {lower} and {upper}");
                    return Err(Error::argument(FUNCTION, &name(&structure, i), &expected, x));
                }
            }
            let is_free = |i: &usize| values[*i] > bounds[*i][0] && values[*i] < bounds[*i][1];
            let free: Vec<usize> = (0..values.len()).filter(is_free).collect();
            let (_, here) = around.here()?;
            let mut noise = 0.0_f64;
            let mut rows = Array2::zeros((free.len(), free.len()));
            for (row, &i) in free.iter().enumerate() {
                let dtype = structure.leaves()[place(&structure, i).0].dtype();
                let compute = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
                noise = noise.max(100.0 * epsilon(compute).powf(2.0 / 3.0));
                let step = epsilon(dtype).cbrt() * values[i].abs().max(sizes[i]);
                let [first, second] = points(values[i], step, bounds[i]);
                let (first, _, at_first) = around.at(i, first)?;
                let (second, _, at_second) = around.at(i, second)?;
                let (a, b) = (first - values[i], second - values[i]);
                for (column, &j) in free.iter().enumerate() {
                    // The derivative at 0 of the parabola through three points.
                    let (to_a, to_b) = (at_first[j] - here[j], at_second[j] - here[j]);
                    let second = (b / a * to_a - a / b * to_b) / (b - a);
                    if !second.is_finite() {
                        let expected = "a parameter with a finite gradient around it";
                        return Err(Error::argument(FUNCTION, &name(&structure, i), expected, second));
                    }
                    rows[[row, column]] = second;
                }
            }
            let asymmetry = asymmetry(&rows);
            let matrix = (&rows + &rows.t()) / 2.0;
            Ok(Hessian { structure, free, matrix, asymmetry, noise })
        })
    }
}

impl Hessian {
    /// Returns the matrix; [`names`](Self::names) identifies its rows.
    pub fn matrix(&self) -> &Array2<f64> {
        &self.matrix
    }

    /// Returns the element of each row: path and index, such as `layer/weight[0, 1]`.
    pub fn names(&self) -> Vec<String> {
        self.free.iter().map(|i| name(&self.structure, *i)).collect()
    }

    /// Returns the elements on a bound, which have no row.
    pub fn on_bounds(&self) -> Vec<String> {
        let elements = self.structure.leaves().iter().map(crate::tree::LeafSpec::len).sum();
        let on_bounds = (0..elements).filter(|i| self.free.binary_search(i).is_err());
        on_bounds.map(|i| name(&self.structure, i)).collect()
    }

    /// Returns the asymmetry of the differences: the largest `|H_ij − H_ji| / √|H_ii·H_jj|`.
    ///
    /// It is about 1e-9 for an exact gradient in `f64`; more if a step does not fit a parameter's size, or the gradient
    /// is wrong.
    pub fn asymmetry(&self) -> f64 {
        self.asymmetry.0
    }

    /// Returns the inverse: the covariance of maximum likelihood, for a negative log-likelihood.
    ///
    /// # Errors
    ///
    /// Fails if the matrix is not positive definite, up to the errors of the differences. The message names the first
    /// parameter along which the function does not curve upwards, or which the parameters before it determine. Also
    /// fails if the matrix is [asymmetric](Self::asymmetry) by more than 0.01.
    ///
    /// ```
    /// use gradchain::minimize::hessian;
    ///
    /// // Only the sum of the two is determined.
    /// let loss = |p: &(f64, f64)| ((p.0 + p.1).powi(2), (2.0 * (p.0 + p.1), 2.0 * (p.0 + p.1)));
    /// let error = hessian(&(1.0, -1.0), loss).run()?.covariance().unwrap_err();
    /// assert!(error.to_string().starts_with("covariance: argument `1` must be identifiable given"));
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    pub fn covariance(&self) -> Result<Covariance> {
        Covariance::of(self)
    }
}

fn sizes(function: &str, size: &Operand, structure: &Structure) -> Result<Vec<f64>> {
    match size.tree() {
        Some(tree) => tree.fit(function, "typical_size", structure, &vec![true; structure.len()])?,
        None if size.fixed().is_none() => {
            return Err(Error::argument(function, "typical_size", "a number or a tree", "a schedule"));
        }
        None => {}
    }
    Ok(structure.leaves().iter().flat_map(|leaf| size.of_leaf(leaf)).collect())
}

/// Returns two points near `x` within the bounds, on both sides if possible.
fn points(x: f64, step: f64, [lower, upper]: [f64; 2]) -> [f64; 2] {
    let (below, above) = (x - lower, upper - x);
    if step <= below && step <= above {
        [x + step, x - step]
    } else if above >= below {
        let step = step.min(above / 2.0);
        [x + step, x + 2.0 * step]
    } else {
        let step = step.min(below / 2.0);
        [x - step, x - 2.0 * step]
    }
}

fn asymmetry(rows: &Array2<f64>) -> (f64, [usize; 2]) {
    let mut most = (0.0, [0, 0]);
    for ((i, j), there) in rows.indexed_iter() {
        let difference = (there - rows[[j, i]]).abs();
        let relative = difference / (rows[[i, i]] * rows[[j, j]]).abs().sqrt();
        if difference > 0.0 && relative > most.0 {
            most = (relative, [i, j]);
        }
    }
    most
}
