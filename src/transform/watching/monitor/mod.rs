mod measure;
mod quantity;
mod state;

pub use measure::{GlobalNorm, Measure, MeasureFn, NotFinite, TreeSum, measure_fn};
pub use quantity::{MeasureWithEma, Measured, Quantity, measure_with_ema, of_params, ratio};
pub use state::{Measurements, MonitorState, measurements};

use crate::internal::engine::{Observer, Observes};
use crate::internal::numeric::current_simd_level;
use crate::part::prelude::*;
use crate::recipe::{Recipe, ToRecipe};
use crate::select::Labels;

/// Measures the passing updates under names to read in the state; changes nothing.
///
/// Add measurements with [`measure`](Monitor::measure): [`GlobalNorm`], [`TreeSum`], [`NotFinite`], custom functions
/// ([`measure_fn`], [`Measure`]), one of these [of the parameters](of_params()), the [`ratio`] of two, or the running
/// mean of one ([`measure_with_ema`]). For one measurement use [`snapshot`]. It measures the tree as a whole, and
/// optionally each leaf ([`by_leaf`](Monitor::by_leaf)) and each group of leaves ([`by_group`](Monitor::by_group)).
///
/// Inside [`multi_steps`](crate::multi_steps) it measures the emitted updates; before it in a chain, every mini-batch.
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
/// No pass of its own: it sums while updates are in the L1 cache. A chain with a monitor runs stage by stage on such
/// tiles instead of as one loop. State: an `f64` for each measurement, two more values for each running mean; as many
/// for each leaf and each group if measured by these.
///
/// # Errors
///
/// `init` fails if two measurements have the same name, the decay of a running mean is not in `[0, 1)`, or a leaf has
/// no group although groups are measured.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::{GlobalNorm, measure_with_ema, monitor};
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
/// Optax, [`monitor`](https://optax.readthedocs.io/en/latest/api/transformations.html). Differs: a measurement is a
/// number computed from a sum over elements, so that it needs no pass of its own; before the first step it is NaN.
pub fn monitor() -> Monitor {
    Monitor { measures: Vec::new(), by_leaf: false, by_group: None }
}

/// Measures the passing updates under one name to read in the state; changes nothing.
///
/// It is a [`monitor`] with one measurement.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::{GlobalNorm, snapshot};
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
    by_leaf: bool,
    by_group: Option<Labels>,
}

impl Monitor {
    /// Adds a measurement under a name.
    pub fn measure(mut self, name: impl Into<String>, measure: impl Into<Measured>) -> Self {
        self.measures.push((name.into(), measure.into()));
        self
    }

    /// Sets whether each leaf is measured separately too.
    ///
    /// ```
    /// use gradchain::prelude::*;
    /// use gradchain::transform::{GlobalNorm, monitor};
    ///
    /// let optimizer = chain((monitor().measure("norm", GlobalNorm).by_leaf(true), sgd(1.0)));
    /// let mut params = (0.0_f32, vec![0.0_f32, 0.0]);
    /// let mut state = optimizer.init(&params)?;
    /// optimizer.step(&mut params, &(12.0_f32, vec![3.0_f32, 4.0]), &mut state)?;
    /// let readings = optimizer.readings(&state)?;
    /// assert_eq!([readings.get("norm")?, readings.get("norm[0]")?, readings.get("norm[1]")?], [13.0, 12.0, 5.0]);
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    pub fn by_leaf(mut self, by_leaf: bool) -> Self {
        self.by_leaf = by_leaf;
        self
    }

    /// Measures each group of leaves too; a group has one label.
    ///
    /// ```
    /// use gradchain::prelude::*;
    /// use gradchain::transform::{GlobalNorm, monitor};
    ///
    /// let layers = Labels::tree([("0", "first"), ("1", "first"), ("2", "last")]);
    /// let optimizer = chain((monitor().measure("norm", GlobalNorm).by_group(layers), sgd(1.0)));
    /// let mut params = (0.0_f32, 0.0_f32, 0.0_f32);
    /// let mut state = optimizer.init(&params)?;
    /// optimizer.step(&mut params, &(3.0_f32, 4.0_f32, 12.0_f32), &mut state)?;
    /// let readings = optimizer.readings(&state)?;
    /// assert_eq!([readings.get("norm")?, readings.get("norm.first")?, readings.get("norm.last")?], [13.0, 5.0, 12.0]);
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    pub fn by_group(mut self, labels: impl Into<Labels>) -> Self {
        self.by_group = Some(labels.into());
        self
    }
}

impl Part for Monitor {
    const NAME: &'static str = "monitor";
    type Form = Observes;

    fn effect(&self) -> Effect {
        Effect::SAME_DIRECTION
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

    fn changed_argument(&self, original: &Self) -> Option<&'static str> {
        let [ours, theirs] =
            [self, original].map(|part| part.measures.iter().map(|(name, of)| (name, of.mean.is_some())));
        let measures = !ours.eq(theirs);
        let (by_leaf, by_group) = (self.by_leaf != original.by_leaf, self.by_group != original.by_group);
        let changed = [(measures, "measures"), (by_leaf, "by_leaf"), (by_group, "by_group")];
        changed.into_iter().find(|(changed, _)| *changed).map(|(_, name)| name)
    }

    fn recipe(&self) -> Recipe {
        let measures = self.measures.iter().map(|(name, measure)| (&**name, measure.to_recipe()));
        let mut arguments = vec![("measures", Recipe::map(measures)), ("by_leaf", self.by_leaf.to_recipe())];
        arguments.extend(self.by_group.as_ref().map(|labels| ("by_group", labels.to_recipe())));
        Recipe::call(Self::NAME, arguments)
    }

    fn describe(&self) -> String {
        let names: Vec<_> = self.measures.iter().map(|(name, _)| &**name).collect();
        format!("monitor({})", names.join(", "))
    }
}

impl Observer for Monitor {
    type Memory = MonitorState;

    fn start(&self, at: &InitContext<'_>) -> Result<MonitorState> {
        let groups = self.by_group.as_ref().map(|labels| labels.groups(at.structure(), "by_group of monitor"));
        Ok(MonitorState::new(&self.measures, at, self.by_leaf, groups.transpose()?))
    }

    fn sums(&self) -> usize {
        self.measures.iter().map(|(_, measure)| measure.quantity.sums()).sum()
    }

    fn reads_params(&self) -> bool {
        self.measures.iter().any(|(_, measure)| measure.quantity.reads_params())
    }

    #[inline(always)]
    fn observe<C: Real>(&self, u: &[C], p: &[C], sums: &mut [f64]) {
        let (simd, mut sums) = (current_simd_level(), sums.iter_mut());
        self.measures.iter().for_each(|(_, measure)| measure.quantity.add(simd, u, p, &mut sums));
    }

    fn finish(&self, state: &mut MonitorState, sums: Sums<'_>) {
        state.record(&self.measures, sums);
    }
}
