use crate::element::Real;
use crate::engine::{InitContext, Place, Shape, Span, Stage, StepContext, Tile, fused_tile};
use crate::error::{Error, Result};
use crate::macros::builder;
use crate::schedule::Hyperparam;
use crate::state::{Count, Scalar};
use crate::wrapper::state_fields;

/// Multiplies updates by a factor that becomes smaller whenever the loss has stopped improving.
///
/// A step needs the [value](crate::extra::value) to watch: the loss of the batch, or of other data. After an optimizer in a
/// chain it multiplies the learning rate.
///
/// # Arithmetic
///
/// Values are taken `accumulation_size` at a time; with each mean of so many:
///
/// ```text
/// improved = mean < (1 − rtol)·best_value − atol           not where the mean is NaN
/// improved:         best_value ← mean
/// in a cooldown:    cooldown_count ← cooldown_count − 1;   plateau_count ← 0
/// otherwise:        plateau_count ← 0 if improved else plateau_count + 1
///     and if that is patience:
///                   scale ← scale·factor;   cooldown_count ← cooldown;   plateau_count ← 0
///                   scale ← max(scale, min_scale)
/// ```
///
/// and in every step `u ← u·scale`, with the scale that its value led to.
///
/// # Cost
///
/// No state for elements. Fuses; reads no parameters.
///
/// # Errors
///
/// `init` fails if `factor` is not between 0 and 1, `rtol` is not in `[0, 1]`, `atol` is negative, both are 0, `min_scale` is
/// not finite, or `patience` or `accumulation_size` is 0.
///
/// # Example
///
/// The second value is no improvement, nor is the third:
///
/// ```
/// use gradchain::extra;
/// use gradchain::prelude::*;
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
/// Optax, [`contrib.reduce_on_plateau`](https://optax.readthedocs.io/en/latest/api/contrib.html). Differs: losses
/// are kept in `f64`, in Optax in the type of the parameters; `patience` and `accumulation_size` of 0 are refused: with them
/// Optax reduces on improvement, or never. PyTorch's `ReduceLROnPlateau`
/// tests either a relative or an absolute improvement, and reduces after more than `patience` values without one.
pub fn reduce_on_plateau() -> ReduceOnPlateau {
    ReduceOnPlateau {
        factor: 0.1.into(),
        rtol: 1e-4.into(),
        atol: 0.0.into(),
        min_scale: 0.0.into(),
        patience: 10,
        cooldown: 0,
        accumulation_size: 1,
    }
}

/// See [`reduce_on_plateau`].
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a transformation does nothing until it is given gradients"]
pub struct ReduceOnPlateau {
    /// What the scale is multiplied by: between 0 and 1.
    pub factor: Hyperparam,
    /// The part of the best value by which a better one must be less, in `[0, 1]`.
    pub rtol: Hyperparam,
    /// The amount by which it must be less besides; not negative.
    pub atol: Hyperparam,
    /// The scale at which there is no more reducing.
    pub min_scale: Hyperparam,
    /// How many values without improvement make a plateau: at least 1.
    pub patience: u64,
    /// How many values after a reduction are not counted.
    pub cooldown: u64,
    /// How many values are averaged to one: at least 1.
    pub accumulation_size: u64,
}

builder! {
    ReduceOnPlateau as "reduce_on_plateau" {
        hyperparams: factor, rtol, atol, min_scale;
        options: ;
        integers: patience: u64, cooldown: u64, accumulation_size: u64;
    }
}

/// What [`reduce_on_plateau`] remembers.
#[derive(Clone, Debug)]
pub struct ReduceOnPlateauState {
    /// Steps done.
    pub steps: Count,
    /// What updates are multiplied by.
    pub scale: Scalar,
    /// The best value so far; infinite before there is one.
    pub best_value: Scalar,
    /// Values since it, or since the last reduction.
    pub plateau_count: Count,
    /// Values that are still not counted.
    pub cooldown_count: Count,
    /// Values of the mean that is being taken.
    pub count: Count,
    /// Their mean.
    pub avg_value: Scalar,
}

state_fields!(ReduceOnPlateauState<> { steps, scale, best_value, plateau_count, cooldown_count, count, avg_value });

impl ReduceOnPlateau {
    /// Takes a value into the mean, and when that is complete decides.
    fn watch(&self, state: &mut ReduceOnPlateauState, value: f64) {
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
        let improved = mean < (1.0 - self.rtol.at(step)) * best - self.atol.at(step);
        if improved {
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

impl Stage for ReduceOnPlateau {
    type Needs = crate::needs::Value;
    type State = ReduceOnPlateauState;
    /// The scale of this step.
    type Run = f64;
    type Kernel<C: Real> = C;

    const SHAPE: Shape = Shape::elementwise(false, false);
    const FUSES: bool = true;

    fn validate(&self) -> Result<()> {
        const NAME: &str = "reduce_on_plateau";
        self.factor.validate(NAME, "factor", "between 0 and 1", |x| 0.0 < x && x < 1.0)?;
        self.rtol.validate(NAME, "rtol", "in [0, 1]", |x| (0.0..=1.0).contains(&x))?;
        self.atol.validate(NAME, "atol", "finite and not negative", |x| x >= 0.0 && x.is_finite())?;
        if [&self.rtol, &self.atol].iter().all(|tolerance| **tolerance == Hyperparam::Number(0.0)) {
            return Err(Error::argument(NAME, "rtol", "more than 0 if `atol` is 0", 0.0));
        }
        self.min_scale.validate(NAME, "min_scale", "finite", f64::is_finite)?;
        for (name, n) in [("patience", self.patience), ("accumulation_size", self.accumulation_size)] {
            if n == 0 {
                return Err(Error::argument(NAME, name, "at least 1", n));
            }
        }
        Ok(())
    }

    fn init_state(&self, _: &InitContext<'_>) -> Result<ReduceOnPlateauState> {
        Ok(ReduceOnPlateauState {
            steps: Count::default(),
            scale: Scalar::new(1.0),
            best_value: Scalar::new(f64::INFINITY),
            plateau_count: Count::default(),
            cooldown_count: Count::default(),
            count: Count::default(),
            avg_value: Scalar::default(),
        })
    }

    fn begin(&self, state: &mut ReduceOnPlateauState, at: &StepContext<'_>) -> f64 {
        self.watch(state, at.value().unwrap_or(f64::NAN));
        state.steps.increment();
        state.scale.get()
    }

    fn tile<C: Real>(&self, state: &Self::State, run: &f64, place: Place, span: Span, tile: &mut Tile<'_, C>) {
        fused_tile(self, state, run, place, span, tile);
    }

    #[inline]
    fn kernel<C: Real>(&self, _: &Self::State, scale: &f64, _: usize) -> C {
        C::of(*scale)
    }

    #[inline(always)]
    fn apply<C: Real>(scale: &C, at: usize, span: Span, _: &mut [C], u: C, _: C, _: &mut [u32]) -> C {
        if span.has(at) { u * *scale } else { u }
    }

    fn state_bytes(&self, _: &Self::State, _: usize, _: usize, _: Span) -> usize {
        0
    }

    fn recipe(&self) -> crate::recipe::Recipe {
        crate::recipe::of_arguments(self)
    }

    fn describe(&self) -> String {
        "reduce_on_plateau".into()
    }
}
