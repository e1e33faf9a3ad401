mod measure;
mod state;

pub use measure::{GlobalNorm, Measure, MeasureFn, MeasureWithEma, Measured, TreeSum, measure_fn, measure_with_ema};
pub use state::{Measurements, MonitorState, measurements};

use crate::engine::current_isa;
use crate::part::prelude::*;
use crate::recipe::Recipe;

/// Measures the updates that pass through, under names to read in the state; changes nothing.
///
/// Give it something to measure with [`measure`](Monitor::measure): [`GlobalNorm`], [`TreeSum`], functions of your own
/// ([`measure_fn`], [`Measure`]), or the running mean of one of these ([`measure_with_ema`]). For one measurement there is
/// [`snapshot`].
///
/// Inside [`multi_steps`](crate::multi_steps) it measures what is emitted; before it in a chain, every mini-batch.
///
/// # Arithmetic
///
/// ```text
/// u ← u
/// measurement = of_sum(Σ element(u))         in f64
/// ```
///
/// # Cost
///
/// No pass of its own: sums are taken while updates are in the first-level cache. A chain with a monitor in it is run
/// member by member on such tiles instead of as one loop. An `f64` for each measurement, two more values for each running
/// mean.
///
/// # Errors
///
/// `init` fails if two measurements have one name, or the decay of a running mean is not in `[0, 1)`.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::GlobalNorm;
///
/// let watch = monitor().measure("norm", GlobalNorm).measure("norm_ema", measure_with_ema(GlobalNorm, 0.9));
/// let optimizer = chain((watch, clip_by_global_norm(1.0), sgd(0.1)));
/// let mut params = vec![0.0_f32, 0.0];
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &vec![3.0_f32, 4.0], &mut state)?;
/// assert_eq!(state.0.get("norm"), Some(5.0));
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Optax, [`monitor`](https://optax.readthedocs.io/en/latest/api/transformations.html). Differs: a measurement is a number
/// that follows from a sum over elements, so that it needs no pass of its own; before the first step it is NaN.
pub fn monitor() -> Monitor {
    Monitor { measures: Vec::new() }
}

/// Measures the updates that pass through, under a name to read in the state; changes nothing.
///
/// A [`monitor`] with one measurement, which see.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::GlobalNorm;
///
/// let optimizer = chain((clip_by_global_norm(1.0), snapshot("clipped_norm", GlobalNorm), sgd(0.5)));
/// let mut params = vec![0.0_f32, 0.0];
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &vec![0.0_f32, 4.0], &mut state)?;
/// assert_eq!(state.1.get("clipped_norm"), Some(1.0));
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Optax, [`snapshot`](https://optax.readthedocs.io/en/latest/api/transformations.html). Differs: as [`monitor`]; Optax
/// measures the parameters in `init`.
pub fn snapshot(measure_name: impl Into<String>, measure: impl Into<Measured>) -> Monitor {
    monitor().measure(measure_name, measure)
}

/// See [`monitor`].
#[derive(Clone, Debug)]
#[must_use = "a transformation does nothing until it is given gradients"]
pub struct Monitor {
    measures: Vec<(String, Measured)>,
}

impl Monitor {
    /// Adds something to measure under a name.
    pub fn measure(mut self, name: impl Into<String>, measure: impl Into<Measured>) -> Self {
        self.measures.push((name.into(), measure.into()));
        self
    }
}

impl Part for Monitor {
    const NAME: &'static str = "monitor";
    type Form = LooksOn;

    fn effect(&self) -> Effect {
        Effect::ALONG
    }

    fn validate(&self) -> Result<()> {
        let names: Vec<_> = self.measures.iter().map(|(name, _)| name).collect();
        if let Some((i, name)) = names.iter().enumerate().find(|(i, name)| names[..*i].contains(name)) {
            return Err(Error::argument(
                Self::NAME,
                "measures",
                "of different names",
                format!("`{name}` again at {i}"),
            ));
        }
        self.measures.iter().try_for_each(|(_, measure)| measure.validate())
    }

    fn recipe(&self) -> Recipe {
        let measures = self.measures.iter().map(|(name, measure)| (&**name, measure.to_recipe()));
        Recipe::call(Self::NAME, [("measures", Recipe::map(measures))])
    }

    fn describe(&self) -> String {
        let names: Vec<_> = self.measures.iter().map(|(name, _)| &**name).collect();
        format!("monitor({})", names.join(", "))
    }
}

impl Onlooker for Monitor {
    type Memory = MonitorState;

    fn start(&self, at: &InitContext<'_>) -> Result<MonitorState> {
        let leaves = at.structure().leaves().iter().zip(at.active());
        let elements = leaves.map(|(leaf, on)| if *on { leaf.len() } else { 0 }).sum();
        Ok(MonitorState::new(&self.measures, elements))
    }

    fn sums(&self) -> usize {
        self.measures.len()
    }

    #[inline(always)]
    fn look<C: Real>(&self, u: &[C], sums: &mut [f64]) {
        for (sum, (_, measure)) in sums.iter_mut().zip(&self.measures) {
            *sum += measure.sum(current_isa(), u);
        }
    }

    fn finish(&self, state: &mut MonitorState, sums: Sums<'_>) {
        state.record(&self.measures, sums);
    }
}
