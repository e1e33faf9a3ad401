//! Measures: numbers computed from a sum over elements.

use core::fmt;
use std::sync::Arc;

use crate::SimdLevel;
use crate::internal::numeric::{BothTypes, Job, TypeFamily, dispatch, sum_tile};
use crate::part::prelude::*;
use crate::recipe::Recipe;

/// A number computed from a sum over the elements of all updates; see [`monitor`](crate::transform::monitor).
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::{Measure, snapshot};
///
/// /// The binary exponent of the mean square, for a histogram.
/// #[derive(Clone, Debug)]
/// struct Magnitude;
///
/// impl Measure for Magnitude {
///     fn element(&self, u: f64) -> f64 {
///         u * u
///     }
///     fn of_sum(&self, sum: f64, elements: usize) -> f64 {
///         (sum / elements as f64).log2().floor()
///     }
/// }
///
/// let optimizer = chain((snapshot("magnitude", Magnitude), sgd(0.1)));
/// let mut params = vec![0.0_f32, 0.0];
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &vec![5.0_f32, 7.0], &mut state)?; // 37 is between 32 and 64
/// assert_eq!(state.0.get("magnitude"), Some(5.0));
/// # Ok::<(), gradchain::Error>(())
/// ```
pub trait Measure: fmt::Debug + Send + Sync + 'static {
    /// Returns the summand of one element: an update, or a parameter for measures [of
    /// parameters](crate::transform::of_params()).
    fn element(&self, u: f64) -> f64;

    /// Returns the measurement, from the sum over all elements and their number.
    fn of_sum(&self, sum: f64, elements: usize) -> f64 {
        let _ = elements;
        sum
    }

    /// Returns whether [`element`](Measure::element) is the square and the measurement the root of the sum. If so,
    /// squares of `f64` elements are scaled so that they neither overflow nor vanish.
    fn is_norm(&self) -> bool {
        false
    }

    /// Returns the recipe: the construction as data.
    fn to_recipe(&self) -> Recipe {
        Recipe::Opaque(format!("{self:?}"))
    }
}

/// A measure whose own loops inline [`element`](Measure::element).
pub(super) trait Accumulates: Measure {
    fn sum_f32(&self, simd: SimdLevel, u: &[f32]) -> f64;
    fn sum_f64(&self, simd: SimdLevel, u: &[f64]) -> f64;
}

impl<M: Measure> Accumulates for M {
    fn sum_f32(&self, simd: SimdLevel, u: &[f32]) -> f64 {
        dispatch(simd, SumElements { measure: self, u })
    }
    fn sum_f64(&self, simd: SimdLevel, u: &[f64]) -> f64 {
        dispatch(simd, SumElements { measure: self, u })
    }
}

struct SumElements<'a, M, C> {
    measure: &'a M,
    u: &'a [C],
}

impl<M: Measure, C: Real> Job for SumElements<'_, M, C> {
    type Output = f64;
    #[inline(always)]
    fn run(self) -> f64 {
        sum_tile(self.u, |u| self.measure.element(u.as_f64()))
    }
}

/// Selects the method that sums a tile in a compute type.
pub(super) struct Sum;

impl TypeFamily for Sum {
    type Of<C: Real> = fn(&dyn Accumulates, SimdLevel, &[C]) -> f64;
}

pub(super) const SUM: BothTypes<Sum> = BothTypes {
    single: |measure, simd, u| measure.sum_f32(simd, u),
    double: |measure, simd, u| measure.sum_f64(simd, u),
};

/// The norm of all updates together, or of those of a leaf or group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GlobalNorm;

impl Measure for GlobalNorm {
    #[inline(always)]
    fn element(&self, u: f64) -> f64 {
        u * u
    }

    fn of_sum(&self, sum: f64, _: usize) -> f64 {
        sum.sqrt()
    }

    fn is_norm(&self) -> bool {
        true
    }

    fn to_recipe(&self) -> Recipe {
        Recipe::text("global_norm")
    }
}

/// The sum of all updates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeSum;

impl Measure for TreeSum {
    #[inline(always)]
    fn element(&self, u: f64) -> f64 {
        u
    }

    fn to_recipe(&self) -> Recipe {
        Recipe::text("tree_sum")
    }
}

/// The number of updates that are NaN or infinite.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NotFinite;

impl Measure for NotFinite {
    #[inline(always)]
    fn element(&self, u: f64) -> f64 {
        f64::from(!u.is_finite())
    }

    fn to_recipe(&self) -> Recipe {
        Recipe::text("not_finite")
    }
}

/// Returns a measure from two functions: one of an element, whose values are summed, and one of sum and element count.
///
/// The name stands for the functions in messages and printouts.
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::{measure_fn, snapshot};
///
/// // The fraction of elements that `clip(1.0)` changes.
/// let clipped = measure_fn("clipped", |u| f64::from(u.abs() > 1.0), |sum, elements| sum / elements as f64);
/// let optimizer = chain((snapshot("clipped", clipped), clip(1.0), sgd(0.1)));
/// let mut params = vec![0.0_f32; 4];
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &vec![0.5_f32, -3.0, 1.0, 0.0], &mut state)?;
/// assert_eq!(state.0.get("clipped"), Some(0.25));
/// # Ok::<(), gradchain::Error>(())
/// ```
pub fn measure_fn<F, G>(name: impl Into<Arc<str>>, element: F, of_sum: G) -> MeasureFn<F, G>
where
    F: Fn(f64) -> f64 + Send + Sync + 'static,
    G: Fn(f64, usize) -> f64 + Send + Sync + 'static,
{
    MeasureFn { name: name.into(), element, of_sum }
}

/// See [`measure_fn`].
#[derive(Clone)]
pub struct MeasureFn<F, G> {
    name: Arc<str>,
    element: F,
    of_sum: G,
}

impl<F, G> fmt::Debug for MeasureFn<F, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "measure_fn({:?}, ..)", self.name)
    }
}

impl<F, G> Measure for MeasureFn<F, G>
where
    F: Fn(f64) -> f64 + Send + Sync + 'static,
    G: Fn(f64, usize) -> f64 + Send + Sync + 'static,
{
    #[inline(always)]
    fn element(&self, u: f64) -> f64 {
        (self.element)(u)
    }

    fn of_sum(&self, sum: f64, elements: usize) -> f64 {
        (self.of_sum)(sum, elements)
    }
}
