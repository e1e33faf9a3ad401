//! The Newton-Schulz iteration, which brings the singular values of a matrix near 1.

use super::dimensions::MatrixOffsets;
use crate::SimdLevel;
use crate::internal::numeric::{
    Job, current_simd_level, dispatch, is_safe, length, matmul, matrix, spectral_norm, sum_tile, symmetric_matmul,
};
use crate::internal::recipe::words;
use crate::part::prelude::*;
use crate::recipe::{self, ConfigError, FromRecipe, Node, Recipe, ToRecipe};
use core::any::Any;

/// The coefficients `(a, b, c)` of `X ← a·X + (b·A + c·A²)·X`: the same for all steps, or a row for each.
#[derive(Clone, Debug, PartialEq)]
pub struct NsCoeffs {
    rows: Vec<[f64; 3]>,
    /// One row for all steps.
    repeated: bool,
}

impl NsCoeffs {
    /// Returns Jordan's coefficients, which are as steep at 0 as possible.
    pub fn standard() -> NsCoeffs {
        [3.4445, -4.7750, 2.0315].into()
    }

    /// Returns the five rows of [Dion](https://arxiv.org/abs/2504.05295), which end closer to 1.
    pub fn dion() -> NsCoeffs {
        let rows = [
            [4.0848, -6.8946, 2.9270],
            [3.9505, -6.3029, 2.6377],
            [3.7418, -5.5913, 2.3037],
            [2.8769, -3.1427, 1.2046],
            [2.8366, -3.0525, 1.2012],
        ];
        NsCoeffs::from(rows.to_vec())
    }

    /// Returns the preset `standard` or `dion`, named as in Optax.
    ///
    /// # Errors
    ///
    /// Fails for any other name.
    ///
    /// ```
    /// use gradchain::transform::NsCoeffs;
    /// assert_eq!(NsCoeffs::preset("standard")?, NsCoeffs::from([3.4445, -4.775, 2.0315]));
    /// let error = NsCoeffs::preset("nope").unwrap_err();
    /// assert_eq!(error.to_string(), "ns_coeffs: unknown preset `nope` (known: standard, dion)");
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    pub fn preset(name: &str) -> Result<NsCoeffs> {
        match name {
            "standard" => Ok(NsCoeffs::standard()),
            "dion" => Ok(NsCoeffs::dion()),
            _ => Err(Error::unknown_name("ns_coeffs", "preset", name, ["standard", "dion"])),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(super) fn rows(&self, steps: usize) -> impl Iterator<Item = [f64; 3]> + Clone + '_ {
        let steps = if self.repeated { steps } else { self.rows.len() };
        self.rows.iter().copied().cycle().take(steps)
    }
}

impl From<[f64; 3]> for NsCoeffs {
    fn from(coeffs: [f64; 3]) -> NsCoeffs {
        NsCoeffs { rows: vec![coeffs], repeated: true }
    }
}

impl From<Vec<[f64; 3]>> for NsCoeffs {
    fn from(rows: Vec<[f64; 3]>) -> NsCoeffs {
        NsCoeffs { rows, repeated: false }
    }
}

impl<const N: usize> From<[[f64; 3]; N]> for NsCoeffs {
    fn from(rows: [[f64; 3]; N]) -> NsCoeffs {
        rows.to_vec().into()
    }
}

/// The normalization that brings the singular values of a matrix to at most 1 before the iteration.
///
/// The last two are tighter bounds than the Frobenius norm and need no product of their own: they follow from `A =
/// X·Xᵀ`, which the first step computes anyway. Their `eps` is at least 1e-8.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Preconditioning {
    /// Divides by the root of the sum of squares.
    #[default]
    Frobenius,
    /// Divides by the largest singular value. Costs about `n²·(m + 4n/3)` multiplications in `f64`, more than the
    /// iteration itself.
    Spectral,
    /// Divides row `i` by the root of `Σ_j |A_ij|`: almost orthogonal layers.
    Aol,
    /// Divides by the root of the Frobenius norm of `A`: the Schatten norm of order 4.
    Schatten,
}

impl Preconditioning {
    /// Returns the method `frobenius`, `spectral`, `aol` or `schatten`, named as in Optax.
    ///
    /// # Errors
    ///
    /// Fails for any other name.
    pub fn from_name(name: &str) -> Result<Preconditioning> {
        match name {
            "frobenius" => Ok(Preconditioning::Frobenius),
            "spectral" => Ok(Preconditioning::Spectral),
            "aol" => Ok(Preconditioning::Aol),
            "schatten" => Ok(Preconditioning::Schatten),
            _ => {
                let known = ["frobenius", "spectral", "aol", "schatten"];
                Err(Error::unknown_name("preconditioning", "method", name, known))
            }
        }
    }
}

/// Least divisor of the last two methods, before the root.
pub(super) const MIN_SQUARED_NORM: f64 = 1e-8;

/// One or several matrices `x` on any device.
pub(super) trait Matrices {
    fn begin(&mut self, preconditioning: Preconditioning);
    /// `a ← x·xᵀ`
    fn gram(&mut self);
    /// Scales the rows of `x` and `a`, if the method does so after the product.
    fn precondition(&mut self, preconditioning: Preconditioning);
    /// `s ← gram_weight·a + square_weight·a²`
    fn polynomial(&mut self, gram_weight: f64, square_weight: f64);
    /// `x ← x_weight·x + s·x`
    fn multiply(&mut self, x_weight: f64);
}

pub(super) fn iterate(
    on: &mut impl Matrices,
    coeffs: impl Iterator<Item = [f64; 3]>,
    preconditioning: Preconditioning,
) {
    on.begin(preconditioning);
    for (step, [a, b, c]) in coeffs.enumerate() {
        on.gram();
        if step == 0 {
            on.precondition(preconditioning);
        }
        on.polynomial(b, c);
        on.multiply(a);
    }
}

/// Scratch space for both compute types. A clone starts empty.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    single: Room<f32>,
    double: Room<f64>,
    wide: Wide,
}

impl Clone for Scratch {
    fn clone(&self) -> Scratch {
        Scratch::default()
    }
}

#[derive(Debug)]
struct Room<C> {
    x: Vec<C>,
    a: Vec<C>,
    squared: Vec<C>,
    product: Vec<C>,
}

impl<C> Default for Room<C> {
    fn default() -> Room<C> {
        Room { x: Vec::new(), a: Vec::new(), squared: Vec::new(), product: Vec::new() }
    }
}

/// Scratch space for the largest singular value.
#[derive(Debug, Default)]
struct Wide {
    x: Vec<f64>,
    a: Vec<f64>,
    work: Vec<f64>,
}

impl Scratch {
    /// Orthogonalizes a matrix; returns the inner product of old and new.
    pub(super) fn orthogonalize<C: Real>(
        &mut self,
        u: &mut [C],
        at: usize,
        matrices: &MatrixOffsets,
        coeffs: impl Iterator<Item = [f64; 3]>,
        preconditioning: Preconditioning,
        eps: f64,
    ) -> f64 {
        let scratch: &mut dyn Any = match C::DTYPE {
            DType::F64 => &mut self.double,
            _ => &mut self.single,
        };
        let Some(scratch) = scratch.downcast_mut::<Room<C>>() else {
            unreachable!("there is room for each compute type");
        };
        let size = [matrices.down.len(), matrices.along.len()];
        scratch.resize(size);
        let places = || matrices.down.iter().flat_map(|i| matrices.along.iter().map(move |j| at + i + j));
        scratch.x.iter_mut().zip(places()).for_each(|(x, place)| *x = u[place]);
        iterate(
            &mut HostSteps { scratch, wide: &mut self.wide, simd: current_simd_level(), size, eps },
            coeffs,
            preconditioning,
        );
        let mut product = 0.0;
        for (x, place) in scratch.x.iter().zip(places()) {
            product += u[place].as_f64() * x.as_f64();
            u[place] = *x;
        }
        product
    }
}

impl Wide {
    fn spectral_norm<C: Real>(&mut self, x: &[C], [n, m]: [usize; 2]) -> f64 {
        self.x.clear();
        self.x.extend(x.iter().map(|x| x.as_f64()));
        // Against overflow and underflow of squares.
        let largest = self.x.iter().fold(0.0, |largest: f64, x| if x.is_nan() { *x } else { largest.max(x.abs()) });
        if largest == 0.0 || !largest.is_finite() {
            return largest;
        }
        self.x.iter_mut().for_each(|x| *x /= largest);
        self.a.resize(n * n, 0.0);
        let x = matrix(&self.x, n, m);
        symmetric_matmul(x, x.reversed_axes(), &mut self.a[..n * n]);
        largest * spectral_norm(&mut self.a[..n * n], n, &mut self.work).sqrt()
    }
}

impl<C: Real> Room<C> {
    fn resize(&mut self, [n, m]: [usize; 2]) {
        self.x.resize(n * m, C::zero());
        self.product.resize(n * m, C::zero());
        self.a.resize(n * n, C::zero());
        self.squared.resize(n * n, C::zero());
    }
}

struct HostSteps<'a, C> {
    scratch: &'a mut Room<C>,
    wide: &'a mut Wide,
    simd: SimdLevel,
    size: [usize; 2],
    eps: f64,
}

impl<C: Real> Matrices for HostSteps<'_, C> {
    fn begin(&mut self, preconditioning: Preconditioning) {
        let norm = match preconditioning {
            Preconditioning::Spectral => self.wide.spectral_norm(&self.scratch.x, self.size),
            _ => frobenius(&self.scratch.x),
        };
        let divisor = C::of(divisor(norm, self.eps, preconditioning));
        if divisor > C::zero() && divisor != C::one() {
            self.scratch.x.iter_mut().for_each(|x| *x /= divisor);
        }
    }

    fn gram(&mut self) {
        let [n, m] = self.size;
        let x = matrix(&self.scratch.x, n, m);
        symmetric_matmul(x, x.reversed_axes(), &mut self.scratch.a);
    }

    fn polynomial(&mut self, gram_weight: f64, square_weight: f64) {
        let (Room { a, squared, .. }, n) = (&mut *self.scratch, self.size[0]);
        let gram = matrix(a, n, n);
        symmetric_matmul(gram, gram, squared);
        dispatch(self.simd, Axpby { x_weight: C::of(gram_weight), x: a, y_weight: C::of(square_weight), y: squared });
    }

    fn multiply(&mut self, x_weight: f64) {
        let (Room { x, squared, product, .. }, [n, m]) = (&mut *self.scratch, self.size);
        matmul(matrix(squared, n, n), matrix(x, n, m), product);
        dispatch(self.simd, Axpby { x_weight: C::of(x_weight), x, y_weight: C::one(), y: product });
        core::mem::swap(x, product);
    }

    fn precondition(&mut self, preconditioning: Preconditioning) {
        let (Room { x, a, squared, .. }, [n, m]) = (&mut *self.scratch, self.size);
        let factor = |squared: f64| 1.0 / (if squared < MIN_SQUARED_NORM { MIN_SQUARED_NORM } else { squared }).sqrt();
        match preconditioning {
            Preconditioning::Frobenius | Preconditioning::Spectral => {}
            Preconditioning::Aol => {
                // `squared` holds the factors until `polynomial` writes it.
                for i in 0..n {
                    let sum = sum_tile(&a[i * n..][..n], |a| a.as_f64().abs());
                    squared[i] = C::of(factor(sum));
                }
                for i in 0..n {
                    let row = squared[i];
                    x[i * m..][..m].iter_mut().for_each(|x| *x *= row);
                    let line = a[i * n..][..n].iter_mut().zip(&*squared);
                    // The product of factors first, equal for `[i, j]` and `[j, i]`, keeps `a` symmetric.
                    line.for_each(|(a, col)| *a *= row * *col);
                }
            }
            Preconditioning::Schatten => {
                let factor = factor(sum_of_squares(a).sqrt());
                let (once, twice) = (C::of(factor), C::of(factor * factor));
                x.iter_mut().for_each(|x| *x *= once);
                a.iter_mut().for_each(|a| *a *= twice);
            }
        }
    }
}

/// The norm below which `eps` is relative to it.
pub(super) const EPS_FROM: f64 = 1e-3;

/// A norm whose fourth power fits an `f32`.
const LARGE: f64 = 1e9;

/// Returns the first divisor of `x`: its norm plus `eps`, which is relative for small norms.
///
/// For the last two methods, which divide by norms of their own, it only prevents underflow and overflow.
fn divisor(norm: f64, eps: f64, preconditioning: Preconditioning) -> f64 {
    // `min` would drop NaN.
    let at_most_1 = |x: f64| if x > 1.0 { 1.0 } else { x };
    match preconditioning {
        Preconditioning::Frobenius | Preconditioning::Spectral => norm + eps * at_most_1(norm / EPS_FROM),
        Preconditioning::Aol | Preconditioning::Schatten if norm > LARGE => norm,
        Preconditioning::Aol | Preconditioning::Schatten => at_most_1(norm),
    }
}

fn frobenius<C: Real>(x: &[C]) -> f64 {
    let squares = sum_of_squares(x);
    if is_safe(squares) { squares.sqrt() } else { length(&mut || x.iter().map(|x| x.as_f64().abs())) }
}

fn sum_of_squares<C: Real>(x: &[C]) -> f64 {
    sum_tile(x, |x| x.as_f64() * x.as_f64())
}

/// `y ← x_weight·x + y_weight·y`
struct Axpby<'a, C> {
    x_weight: C,
    x: &'a [C],
    y_weight: C,
    y: &'a mut [C],
}

impl<C: Real> Job for Axpby<'_, C> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Axpby { x_weight, x, y_weight, y } = self;
        let x = &x[..y.len()];
        for i in 0..y.len() {
            y[i] = x_weight * x[i] + y_weight * y[i];
        }
    }
}

impl ToRecipe for NsCoeffs {
    fn to_recipe(&self) -> Recipe {
        match &self.rows[..] {
            [row] if self.repeated => row.to_recipe(),
            rows => rows.to_recipe(),
        }
    }
}

/// The name of a preset, three numbers, or rows of three.
impl FromRecipe for NsCoeffs {
    fn from_recipe(node: &Node<'_>) -> recipe::Result<NsCoeffs> {
        if let Recipe::Text(name) = node.value() {
            return NsCoeffs::preset(name).map_err(|error| ConfigError::refused(node.place(), error));
        }
        let three = |node: &Node<'_>| -> recipe::Result<[f64; 3]> {
            node.read::<Vec<f64>>()?.try_into().map_err(|_| node.wrong("three numbers"))
        };
        let rows = node.list()?;
        match rows.first().is_some_and(|row| matches!(row.value(), Recipe::List(_))) {
            true => Ok(rows.iter().map(three).collect::<recipe::Result<Vec<_>>>()?.into()),
            false => three(node).map(NsCoeffs::from),
        }
    }
}

words!(Preconditioning { Frobenius = "frobenius", Spectral = "spectral", Aol = "aol", Schatten = "schatten" });
