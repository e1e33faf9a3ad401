//! What can be measured: a number that follows from a sum over elements.

use core::fmt;
use std::sync::Arc;

use crate::element::{Both, PerReal};
use crate::engine::{Isa, Job, dispatch, sum_tile};
use crate::part::prelude::*;
use crate::recipe::{Recipe, ToRecipe};

/// A number that follows from a sum over the elements of all updates; see [`monitor`](crate::monitor).
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::Measure;
///
/// /// The largest power of two that the mean square has in it, for a histogram.
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
    /// What is added up for one element.
    fn element(&self, u: f64) -> f64;

    /// The measurement, from the sum over all elements and their number.
    fn of_sum(&self, sum: f64, elements: usize) -> f64 {
        let _ = elements;
        sum
    }

    /// How it is made, as data.
    fn to_recipe(&self) -> Recipe {
        Recipe::Opaque(format!("{self:?}"))
    }

    // In the trait, so that each measure has loops of its own in which `element` is inlined.
    #[doc(hidden)]
    fn sum_f32(&self, isa: Isa, u: &[f32]) -> f64 {
        dispatch(isa, AddUp { measure: self, u })
    }
    #[doc(hidden)]
    fn sum_f64(&self, isa: Isa, u: &[f64]) -> f64 {
        dispatch(isa, AddUp { measure: self, u })
    }
}

struct AddUp<'a, M: ?Sized, C> {
    measure: &'a M,
    u: &'a [C],
}

impl<M: Measure + ?Sized, C: Real> Job for AddUp<'_, M, C> {
    type Output = f64;
    #[inline(always)]
    fn run(self) -> f64 {
        sum_tile(self.u, |u| self.measure.element(u.as_f64()))
    }
}

/// The method that adds up a tile, for either compute type.
struct Sum;

impl PerReal for Sum {
    type Of<C: Real> = fn(&dyn Measure, Isa, &[C]) -> f64;
}

const SUM: Both<Sum> =
    Both { single: |measure, isa, u| measure.sum_f32(isa, u), double: |measure, isa, u| measure.sum_f64(isa, u) };

/// The norm of all updates together.
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

/// What two functions say: one of an element, whose values are added up, and one of the sum and the number of elements.
///
/// The name stands for the functions in messages and printouts.
///
/// ```
/// use gradchain::prelude::*;
///
/// // How much of the tree a `clip(1.0)` changes.
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

/// The running mean of a measurement, from one step to the next; for [`monitor`](crate::monitor).
///
/// # Arithmetic
///
/// At step `t`, counted from 1:
///
/// ```text
/// mean ← decay·mean + (1 − decay)·measure(u)      starts at 0
/// measurement = mean / (1 − decayᵗ)               with debias, the default; else the mean itself
/// ```
///
/// # Cost
///
/// That of the measure; a count and an `f64`.
///
/// # Errors
///
/// `init` fails if `decay` is not in `[0, 1)`.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::GlobalNorm;
///
/// let watch = monitor().measure("norm", measure_with_ema(GlobalNorm, 0.5));
/// let mut params = vec![0.0_f64, 0.0];
/// let mut state = watch.init(&params)?;
/// watch.step(&mut params, &vec![3.0, 4.0], &mut state)?;
/// assert_eq!(state.get("norm"), Some(5.0));
/// watch.step(&mut params, &vec![0.0, 2.0], &mut state)?; // (2.5·0.5 + 2·0.5) / (1 − 0.5²)
/// assert_eq!(state.get("norm"), Some(3.0));
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Optax, [`measure_with_ema`](https://optax.readthedocs.io/en/latest/api/transformations.html). Differs: the mean is `f64`
/// unless `accumulator_dtype` asks otherwise.
pub fn measure_with_ema(measure: impl Measure, decay: impl IntoHyperparam) -> MeasureWithEma {
    MeasureWithEma { measure: Arc::new(measure), decay: decay.into(), debias: true, accumulator_dtype: None }
}

/// See [`measure_with_ema`].
#[derive(Clone, Debug)]
#[must_use = "a measure does nothing until it is given to `monitor`"]
pub struct MeasureWithEma {
    measure: Arc<dyn Measure>,
    decay: Hyperparam,
    debias: bool,
    accumulator_dtype: Option<DType>,
}

impl MeasureWithEma {
    /// Whether to make up for the start at zero; true by default.
    pub fn debias(mut self, debias: bool) -> Self {
        self.debias = debias;
        self
    }

    /// The type that the mean is kept in, rounded after each step; by default `f64`.
    pub fn accumulator_dtype(mut self, accumulator_dtype: impl Into<Option<DType>>) -> Self {
        self.accumulator_dtype = accumulator_dtype.into();
        self
    }
}

/// Something to measure, at once or as a running mean.
#[derive(Clone, Debug)]
pub struct Measured {
    measure: Arc<dyn Measure>,
    pub(super) mean: Option<Mean>,
}

/// How a running mean is taken.
#[derive(Clone, Debug)]
pub(super) struct Mean {
    pub(super) decay: Hyperparam,
    pub(super) debias: bool,
    pub(super) accumulator_dtype: Option<DType>,
}

impl<M: Measure> From<M> for Measured {
    fn from(measure: M) -> Measured {
        Measured { measure: Arc::new(measure), mean: None }
    }
}

impl From<MeasureWithEma> for Measured {
    fn from(with_ema: MeasureWithEma) -> Measured {
        let MeasureWithEma { measure, decay, debias, accumulator_dtype } = with_ema;
        Measured { measure, mean: Some(Mean { decay, debias, accumulator_dtype }) }
    }
}

impl Measured {
    pub(super) fn validate(&self) -> Result<()> {
        let Some(mean) = &self.mean else { return Ok(()) };
        if let Some(dtype) = mean.accumulator_dtype.filter(|dtype| !dtype.is_supported()) {
            let expected = "a type that the crate was built with";
            return Err(Error::argument("measure_with_ema", "accumulator_dtype", expected, dtype));
        }
        mean.decay.validate("measure_with_ema", "decay", "in [0, 1)", |x| (0.0..1.0).contains(&x))
    }

    pub(super) fn sum<C: Real>(&self, isa: Isa, u: &[C]) -> f64 {
        let sum = C::pick(&SUM).expect("there are tiles of `f32` and `f64` only");
        sum(&*self.measure, isa, u)
    }

    pub(super) fn of_sum(&self, sum: f64, elements: usize) -> f64 {
        self.measure.of_sum(sum, elements)
    }

    pub(super) fn to_recipe(&self) -> Recipe {
        let measure = ("measure", self.measure.to_recipe());
        let Some(mean) = &self.mean else { return Recipe::map([measure]) };
        Recipe::call(
            "measure_with_ema",
            [
                measure,
                ("decay", mean.decay.to_recipe()),
                ("debias", mean.debias.to_recipe()),
                ("accumulator_dtype", mean.accumulator_dtype.to_recipe()),
            ],
        )
    }
}
