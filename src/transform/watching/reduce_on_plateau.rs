use crate::internal::engine::{OneElementWithMemory, RuleWithMemory};
use crate::internal::recipe::words;
use crate::internal::state::state_fields;
use crate::needs::Value;
use crate::part::prelude::*;

/// Multiplies updates by a factor that decreases whenever the loss stops improving.
///
/// A step needs the [value](crate::extra::value) to watch: the loss of the batch, or of other data. After an optimizer
/// in a chain it multiplies the learning rate.
///
/// # Arithmetic
///
/// Values are averaged `accumulation_size` at a time; each mean does:
///
/// ```text
/// improved = mean < best_value − rtol·|best_value| − atol  or there is no best_value yet; not where the mean is NaN
/// improved:         best_value ← mean
/// in a cooldown:    cooldown_count ← cooldown_count − 1;   plateau_count ← 0
/// otherwise:        plateau_count ← 0 if improved else plateau_count + 1
///     and if that is patience:
///                   scale ← scale·factor;   cooldown_count ← cooldown;   plateau_count ← 0
///                   scale ← max(scale, min_scale)
/// ```
///
/// and in every step `u ← u·scale`, with the scale updated by that step's value. With [`PlateauMode::Max`] a value
/// improves if it is greater: `mean > best_value + rtol·|best_value| + atol`.
///
/// For a value measured once an epoch see [`Plateau`](crate::transform::Plateau).
///
/// # Cost
///
/// No state for elements. Fuses; reads no parameters.
///
/// # Errors
///
/// `init` fails if `factor` is not in `(0, 1)`, `rtol` is not in `[0, 1]`, `atol` is negative, both are 0, `min_scale`
/// is not finite, or `patience` or `accumulation_size` is 0.
///
/// # Example
///
/// The second value is no improvement, nor is the third:
///
/// ```
/// use gradchain::extra;
/// use gradchain::prelude::*;
/// use gradchain::transform::reduce_on_plateau;
///
/// let optimizer = chain((sgd(1.0), reduce_on_plateau().factor(0.5).patience(2)));
/// let mut params = 0.0_f64;
/// let mut state = optimizer.init(&params)?;
/// for (loss, after) in [(3.0, -1.0), (3.0, -2.0), (4.0, -2.5), (1.0, -3.0)] {
///     optimizer.step_with(&mut params, &1.0, extra::value(loss), &mut state)?;
///     assert_eq!(params, after);
/// }
/// assert_eq!(state.1.scale.get(), 0.5);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Optax, [`contrib.reduce_on_plateau`](https://optax.readthedocs.io/en/latest/api/contrib.html). Differs: losses are
/// kept in `f64`, in Optax in the dtype of the parameters; the relative tolerance is a fraction of the best value's
/// size, where Optax tests `mean < (1 − rtol)·best_value − atol`, by which a negative loss improves while it rises;
/// [`mode`](ReduceOnPlateau::mode) is an addition; `patience` and `accumulation_size` of 0 are refused: with them Optax
/// reduces on improvement, or never. PyTorch's `ReduceLROnPlateau` has the same `mode`, tests either a relative or an
/// absolute improvement (`threshold_mode`), the relative one as Optax does, and reduces after more than `patience`
/// values without one: its `patience` is one less.
pub fn reduce_on_plateau() -> ReduceOnPlateau {
    ReduceOnPlateau::with()
}

part! {
    /// See [`reduce_on_plateau`].
    pub ReduceOnPlateau as "reduce_on_plateau": OneElementWithMemory<Value>, SAME_DIRECTION;
    hyperparams {
        /// Factor of the scale at a reduction.
        factor: OPEN_UNIT_INTERVAL = 0.1;
        /// Required improvement, as a fraction of the best value's size.
        rtol: UNIT_INTERVAL = 1e-4;
        /// Required absolute improvement in addition; more than 0 if `rtol` is 0.
        atol: NOT_NEGATIVE = 0.0;
        /// Scale below which there is no further reduction.
        min_scale: FINITE = 0.0;
    }
    options {
        /// The direction of improvement: lower or higher values.
        mode: PlateauMode = PlateauMode::Min;
    }
    integers {
        /// Number of values without improvement that make a plateau.
        patience: u64 = 10, AT_LEAST_1;
        /// Number of values ignored after a reduction.
        cooldown: u64 = 0;
        /// Number of values averaged to one.
        accumulation_size: u64 = 1, AT_LEAST_1;
    }
    check Self::check_tolerances;
}

/// The direction of improvement in [`reduce_on_plateau`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PlateauMode {
    /// Lower values, such as losses.
    #[default]
    Min,
    /// Higher values, such as accuracies.
    Max,
}

words!(PlateauMode { Min = "min", Max = "max" });

impl PlateauMode {
    /// Returns the initial best value, which every other value improves.
    fn worst(self) -> f64 {
        match self {
            PlateauMode::Min => f64::INFINITY,
            PlateauMode::Max => f64::NEG_INFINITY,
        }
    }

    fn improves(self, value: f64, best: f64, rtol: f64, atol: f64) -> bool {
        let [value, best] = match self {
            PlateauMode::Min => [value, best],
            PlateauMode::Max => [-value, -best],
        };
        // `best − rtol·|best| − atol`; bitwise identical to Optax's formula for a positive `best`.
        let limit = if best.is_finite() { (1.0 - rtol.copysign(best)) * best - atol } else { best };
        value < limit
    }
}

/// The state of [`reduce_on_plateau`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ReduceOnPlateauState {
    /// Steps done.
    pub steps: Count,
    /// The factor of the updates.
    pub scale: Scalar,
    /// The best value so far; initially infinite, or −∞ with [`PlateauMode::Max`].
    pub best_value: Scalar,
    /// Values since the best one or the last reduction.
    pub plateau_count: Count,
    /// Remaining values to ignore.
    pub cooldown_count: Count,
    /// Values in the current mean.
    pub count: Count,
    /// The current mean.
    pub avg_value: Scalar,
}

state_fields!(ReduceOnPlateauState { steps, scale, best_value, plateau_count, cooldown_count, count, avg_value } reads read);

impl ReduceOnPlateauState {
    /// `count` is that of the losses in a window.
    fn read(&self, walk: &mut crate::state::StateWalk<'_, '_>) {
        walk.clock(self.steps);
    }
}

impl ReduceOnPlateau {
    fn check_tolerances(&self) -> Result<()> {
        if [&self.rtol, &self.atol].iter().all(|tolerance| **tolerance == Hyperparam::Number(0.0)) {
            return Err(Error::argument(Self::NAME, "rtol", "more than 0 if `atol` is 0", 0.0));
        }
        Ok(())
    }

    pub(super) fn unseen(&self) -> ReduceOnPlateauState {
        ReduceOnPlateauState {
            steps: Count::default(),
            scale: Scalar::new(1.0),
            best_value: Scalar::new(self.mode.worst()),
            plateau_count: Count::default(),
            cooldown_count: Count::default(),
            count: Count::default(),
            avg_value: Scalar::default(),
        }
    }

    /// Adds a value to the mean; decides once that is complete.
    pub(super) fn watch(&self, state: &mut ReduceOnPlateauState, value: f64) {
        let before = state.count.get() as f64;
        state.count.increment();
        state.avg_value.set((before * state.avg_value.get() + value) / state.count.get() as f64);
        if state.count.get() >= self.accumulation_size {
            self.decide(state);
            state.count.reset();
            state.avg_value.set(0.0);
        }
    }

    fn decide(&self, state: &mut ReduceOnPlateauState) {
        let step = state.steps.get();
        let (mean, best) = (state.avg_value.get(), state.best_value.get());
        if self.mode.improves(mean, best, self.rtol.at(step), self.atol.at(step)) {
            state.best_value.set(mean);
            state.plateau_count.reset();
        } else {
            state.plateau_count.increment();
        }
        if let Some(left) = state.cooldown_count.get().checked_sub(1) {
            state.cooldown_count = Count::new(left);
            state.plateau_count.reset();
            return;
        }
        if state.plateau_count.get() >= self.patience {
            state.scale.set(state.scale.get() * self.factor.at(step));
            state.cooldown_count = Count::new(self.cooldown);
            state.plateau_count.reset();
        }
        state.scale.set(state.scale.get().max(self.min_scale.at(step)));
    }
}

impl RuleWithMemory for ReduceOnPlateau {
    type Memory = ReduceOnPlateauState;
    type Slots<C: Real> = [C; 0];
    type Scalars<C: Real> = C;

    fn start(&self, _: &InitContext<'_>) -> Result<ReduceOnPlateauState> {
        Ok(self.unseen())
    }

    fn begin(&self, memory: &mut ReduceOnPlateauState, at: &StepContext<'_>) {
        self.watch(memory, at.value().unwrap_or(f64::NAN));
        memory.steps.increment();
    }

    fn scalars<C: Real>(&self, memory: &ReduceOnPlateauState, _: usize) -> C {
        C::of(memory.scale.get())
    }

    #[inline(always)]
    fn apply<C: Real>(scale: C, _: &mut [C; 0], u: C, _: C, _: &mut [u32]) -> C {
        u * scale
    }
}
