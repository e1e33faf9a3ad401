//! Quantities of a monitor: measures of updates and of parameters, ratios, running means.

use std::sync::Arc;

use super::measure::{Accumulates, Measure, SUM};
use crate::SimdLevel;
use crate::internal::numeric::{SMALL, is_safe, sum_tile};
use crate::part::prelude::*;
use crate::recipe::{Recipe, ToRecipe};

/// A measure of the updates, [of the parameters](of_params), or a [`ratio`] of two such.
#[derive(Clone, Debug)]
pub struct Quantity(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Updates(Arc<dyn Accumulates>),
    Params(Arc<dyn Accumulates>),
    Ratio(Box<[Quantity; 2]>),
}

impl<M: Measure> From<M> for Quantity {
    fn from(measure: M) -> Quantity {
        Quantity(Kind::Updates(Arc::new(measure)))
    }
}

/// Measures the parameters before the step in place of the updates; for [`monitor`](crate::transform::monitor).
///
/// # Cost
///
/// The parameters are read in the pass that measures, for most chains the last, which reads them anyway.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::{GlobalNorm, of_params, snapshot};
///
/// let optimizer = chain((snapshot("size", of_params(GlobalNorm)), sgd(1.0)));
/// let mut params = vec![3.0_f32, 4.0];
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &vec![1.0_f32, 1.0], &mut state)?;
/// assert_eq!(state.0.get("size"), Some(5.0));
/// # Ok::<(), gradchain::Error>(())
/// ```
pub fn of_params(measure: impl Measure) -> Quantity {
    Quantity(Kind::Params(Arc::new(measure)))
}

/// Divides one measurement by another; for [`monitor`](crate::transform::monitor). For a leaf or a group it is the
/// ratio of its own numbers.
///
/// After an optimizer, the norm of the updates over that of the parameters is the relative size of a step: for many
/// networks about 10⁻³.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::{GlobalNorm, of_params, ratio, snapshot};
///
/// let how_far = snapshot("how far", ratio(GlobalNorm, of_params(GlobalNorm)));
/// let optimizer = chain((sgd(0.5), how_far));
/// let mut params = vec![3.0_f32, 4.0];
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &vec![0.0_f32, 1.0], &mut state)?;
/// assert_eq!(state.1.get("how far"), Some(0.1));
/// # Ok::<(), gradchain::Error>(())
/// ```
pub fn ratio(of: impl Into<Quantity>, to: impl Into<Quantity>) -> Quantity {
    Quantity(Kind::Ratio(Box::new([of.into(), to.into()])))
}

impl Quantity {
    pub(super) fn sums(&self) -> usize {
        match &self.0 {
            Kind::Ratio(both) => both.iter().map(Quantity::sums).sum(),
            // The sum of squares, and scaled sums against overflow and underflow.
            Kind::Updates(measure) | Kind::Params(measure) => {
                if measure.is_norm() {
                    3
                } else {
                    1
                }
            }
        }
    }

    pub(super) fn reads_params(&self) -> bool {
        match &self.0 {
            Kind::Updates(_) => false,
            Kind::Params(_) => true,
            Kind::Ratio(both) => both.iter().any(Quantity::reads_params),
        }
    }

    /// Adds a chunk to its sums, taken from the front of the iterator.
    pub(super) fn add<C: Real>(&self, simd: SimdLevel, u: &[C], p: &[C], sums: &mut core::slice::IterMut<'_, f64>) {
        let (measure, x) = match &self.0 {
            Kind::Updates(measure) => (measure, u),
            Kind::Params(measure) => (measure, p),
            Kind::Ratio(both) => return both.iter().for_each(|one| one.add(simd, u, p, sums)),
        };
        let sum = C::member(&SUM).expect("there are tiles of `f32` and `f64` only");
        let found = sum(&**measure, simd, x);
        let mut add = |found: f64| sums.next().into_iter().for_each(|total| *total += found);
        if !measure.is_norm() {
            return add(found);
        }
        let lost = C::DTYPE == DType::F64 && !is_safe(found);
        let scaled = |scale: f64| sum_tile(x, |x| (scale * x.as_f64()) * (scale * x.as_f64()));
        let [large, small] = [lost && found > 1.0, lost && found < 1.0];
        add(if lost { 0.0 } else { found });
        add(if large { scaled(SMALL) } else { 0.0 });
        add(if small { scaled(1.0 / SMALL) } else { 0.0 });
    }

    /// Returns the quantity from its sums, which begin at `first`.
    pub(super) fn of_sums(&self, first: usize, sum: &dyn Fn(usize) -> f64, elements: usize) -> f64 {
        match &self.0 {
            Kind::Updates(measure) | Kind::Params(measure) if measure.is_norm() => {
                match [sum(first), sum(first + 1), sum(first + 2)] {
                    [0.0, 0.0, small] => small.sqrt() * SMALL,
                    [rest, 0.0, _] => rest.sqrt(),
                    [rest, large, _] => (large + rest * SMALL * SMALL).sqrt() / SMALL,
                }
            }
            Kind::Updates(measure) | Kind::Params(measure) => measure.of_sum(sum(first), elements),
            Kind::Ratio(both) => {
                let [of, to] = &**both;
                of.of_sums(first, sum, elements) / to.of_sums(first + of.sums(), sum, elements)
            }
        }
    }
}

impl ToRecipe for Quantity {
    fn to_recipe(&self) -> Recipe {
        match &self.0 {
            Kind::Updates(measure) => measure.to_recipe(),
            Kind::Params(measure) => Recipe::map([("of_params", measure.to_recipe())]),
            Kind::Ratio(both) => {
                let both = both.iter().map(ToRecipe::to_recipe).collect();
                Recipe::map([("ratio", Recipe::List(both))])
            }
        }
    }
}

/// Takes the running mean of a measurement over the steps; for [`monitor`](crate::transform::monitor).
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
/// use gradchain::transform::{GlobalNorm, measure_with_ema, monitor};
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
/// Optax, [`measure_with_ema`](https://optax.readthedocs.io/en/latest/api/transformations.html). Differs: the mean is
/// `f64` unless `accumulator_dtype` is set.
pub fn measure_with_ema(measure: impl Into<Quantity>, decay: impl IntoHyperparam) -> MeasureWithEma {
    MeasureWithEma { measure: measure.into(), decay: decay.into(), debias: true, accumulator_dtype: None }
}

/// See [`measure_with_ema`].
#[derive(Clone, Debug)]
#[must_use = "a measure does nothing until it is given to `monitor`"]
pub struct MeasureWithEma {
    measure: Quantity,
    decay: Hyperparam,
    debias: bool,
    accumulator_dtype: Option<DType>,
}

impl MeasureWithEma {
    /// Sets whether to correct the bias from the start at zero; true by default.
    pub fn debias(mut self, debias: bool) -> Self {
        self.debias = debias;
        self
    }

    /// Sets the dtype of the mean, which is rounded after each step; by default `f64`.
    pub fn accumulator_dtype(mut self, accumulator_dtype: impl Into<Option<DType>>) -> Self {
        self.accumulator_dtype = accumulator_dtype.into();
        self
    }
}

/// A measurement, plain or as a running mean.
#[derive(Clone, Debug)]
pub struct Measured {
    pub(super) quantity: Quantity,
    pub(super) mean: Option<Mean>,
}

#[derive(Clone, Debug)]
pub(super) struct Mean {
    pub(super) decay: Hyperparam,
    pub(super) debias: bool,
    pub(super) accumulator_dtype: Option<DType>,
}

impl<Q: Into<Quantity>> From<Q> for Measured {
    fn from(quantity: Q) -> Measured {
        Measured { quantity: quantity.into(), mean: None }
    }
}

impl From<MeasureWithEma> for Measured {
    fn from(with_ema: MeasureWithEma) -> Measured {
        let MeasureWithEma { measure, decay, debias, accumulator_dtype } = with_ema;
        Measured { quantity: measure, mean: Some(Mean { decay, debias, accumulator_dtype }) }
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

    pub(super) fn to_recipe(&self) -> Recipe {
        let measure = ("measure", self.quantity.to_recipe());
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
