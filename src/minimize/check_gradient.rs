use super::flat_point::{FlatPoint, epsilon, name, place};
use super::report::Evaluated;
use super::run::fallible;
use crate::range::POSITIVE;
use crate::tree::{Structure, TreeMut};
use crate::{Error, Result};

/// Compares a gradient with finite differences of the value, and names each element that is off.
///
/// Takes the same function as [`minimize`](crate::Minimize::minimize). Check at parameters where no part of the
/// gradient is 0: at a start, not at a minimum.
///
/// # Arithmetic
///
/// With the machine epsilon `ε` of the leaf's dtype, for each element `x` with the gradient `g`:
///
/// ```text
/// h_k = ε^(k/12)·max(|x|, 1)                    for k = 2, 3, 4, 5
/// d_k = (f(x + h_k) − f(x − h_k)) / 2·h_k
/// e_k = |d_k − d_{k−1}| + 10·ε·|f| / h_k        how far d_k may be off
/// |g − d| ≤ rtol·max(|g|, |d|) + 2·e            or it is off; d is the d_k with the least e_k
/// ```
///
/// `rtol` is 1e-3.
///
/// # Cost
///
/// 8 evaluations for each element; [`per_leaf`](CheckGradient::per_leaf) sets a limit.
///
/// # Errors
///
/// [`run`](CheckGradient::run) fails if an element is off, or the value is not finite at the parameters; otherwise with
/// the error of the function.
///
/// # Example
///
/// ```
/// use gradchain::minimize::check_gradient;
///
/// let right = |p: &[f64; 2]| (p[0] * p[0] * p[1], [2.0 * p[0] * p[1], p[0] * p[0]]);
/// assert_eq!(check_gradient(&[3.0, 0.5], right).run()?.elements, 2);
///
/// let wrong = |p: &[f64; 2]| (p[0] * p[0] * p[1], [2.0 * p[0] * p[1], p[0]]);
/// let error = check_gradient(&[3.0, 0.5], wrong).run().unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "check_gradient: the gradient at `(root)[1]` is 3.000000e0, expected 9.000000e0, \
///      the finite difference of the value"
/// );
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// PyTorch, `torch.autograd.gradcheck`. scipy, `optimize.check_grad`, returns the norm of the difference. Differs: the
/// step is chosen per element, so that an error of the differences is not taken for one of the gradient.
pub fn check_gradient<P, F>(params: &P, f: F) -> CheckGradient<'_, P, F> {
    CheckGradient { params, f, rtol: 1e-3, per_leaf: usize::MAX }
}

/// See [`check_gradient`].
#[derive(Debug)]
#[must_use = "nothing is checked until `run` is called"]
pub struct CheckGradient<'a, P, F> {
    params: &'a P,
    f: F,
    rtol: f64,
    per_leaf: usize,
}

/// The result of a check that passed; see [`check_gradient`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct GradientCheck {
    /// Elements compared.
    pub elements: usize,
    /// The largest difference between a gradient and its finite difference, relative to the larger of the two.
    pub largest_difference: f64,
}

impl<P: TreeMut + Clone, F> CheckGradient<'_, P, F> {
    /// Sets the tolerated relative difference. [Positive](POSITIVE).
    pub fn rtol(mut self, rtol: f64) -> Self {
        self.rtol = rtol;
        self
    }

    /// Compares only `elements` evenly spaced elements of each leaf.
    pub fn per_leaf(mut self, elements: usize) -> Self {
        self.per_leaf = elements;
        self
    }

    /// Runs the check.
    ///
    /// # Errors
    ///
    /// See [`check_gradient`](check_gradient#errors).
    pub fn run<R>(self) -> Result<GradientCheck, R::Error>
    where
        F: FnMut(&P) -> R,
        R: Evaluated,
    {
        let CheckGradient { params, f, rtol, per_leaf } = self;
        fallible(f, |f| {
            if !(POSITIVE.contains)(rtol) {
                return Err(Error::argument("check_gradient", "rtol", POSITIVE.text, rtol));
            }
            let mut around = FlatPoint::new(params, f)?;
            let (value, gradient) = around.here()?;
            if !value.is_finite() {
                return Err(Error::argument("check_gradient", "f", "finite at the parameters", value));
            }
            let (mut check, mut off) = (GradientCheck { elements: 0, largest_difference: 0.0 }, Vec::new());
            for i in chosen(&around.structure, per_leaf) {
                let (g, x) = (gradient[i], around.values[i]);
                let dtype = around.structure.leaves()[place(&around.structure, i).0].dtype();
                let estimate = differences(x, epsilon(dtype), |x| {
                    let (x, value, _) = around.at(i, x)?;
                    Ok((x, value))
                })?;
                check.elements += 1;
                let expected = match estimate {
                    None => "a finite difference, but the value nearby is not finite".into(),
                    Some((d, error)) => {
                        let (difference, size) = ((g - d).abs(), g.abs().max(d.abs()));
                        if difference <= rtol * size + 2.0 * error {
                            let relative = if size > 0.0 { difference / size } else { 0.0 };
                            check.largest_difference = check.largest_difference.max(relative);
                            continue;
                        }
                        format!("{d:.6e}, the finite difference of the value")
                    }
                };
                let at = name(&around.structure, i);
                off.push(Err(Error::state(
                    "check_gradient",
                    format!("the gradient at `{at}` is {g:.6e}, expected {expected}"),
                )));
            }
            Error::all(off)?;
            Ok(check)
        })
    }
}

fn chosen(structure: &Structure, per_leaf: usize) -> Vec<usize> {
    let (mut all, mut first) = (Vec::new(), 0);
    for leaf in structure.leaves() {
        let n = leaf.len();
        let count = n.min(per_leaf);
        all.extend((0..count).map(|k| first + (k as u128 * n as u128 / count as u128) as usize));
        first += n;
    }
    all
}

/// Returns a central difference and its error estimate, if both values are finite.
fn differences(
    x: f64,
    epsilon: f64,
    mut value_at: impl FnMut(f64) -> Result<(f64, f64)>,
) -> Result<Option<(f64, f64)>> {
    let (mut best, mut before) = (None, None::<f64>);
    for k in 2..=5 {
        let h = epsilon.powf(f64::from(k) / 12.0) * x.abs().max(1.0);
        let ((right, above), (left, below)) = (value_at(x + h)?, value_at(x - h)?);
        let d = (above - below) / (right - left);
        if !d.is_finite() {
            continue;
        }
        if let Some(before) = before {
            let error = (d - before).abs() + 10.0 * epsilon * above.abs().max(below.abs()) / h;
            if best.is_none_or(|(_, least)| error < least) {
                best = Some((d, error));
            }
        }
        before = Some(d);
    }
    Ok(best)
}
