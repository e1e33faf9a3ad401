use crate::part::prelude::*;
use crate::recipe::{self, FromRecipe, Node, Recipe, ToRecipe};
use crate::schedule::Schedule;
use crate::transform::moment::Mean;

/// Averages updates, each divided by the root of the moving average of earlier squares.
///
/// # Arithmetic
///
/// Per element, at step `t`, counted from 0:
///
/// ```text
/// x = u / max(√nu, eps)                    limited to ±clip_value_fn(t), unless use_clipping is false
/// mu ← b1·mu + (1 − b1)·x                  starts at 0, and stays there at step 0
/// nu ← b2·nu + (1 − b2)·u²                 u² at step 0
/// u ← mu                                   or, with nesterov: b1·mu + (1 − b1)·x
/// ```
///
/// The first step only initializes the second moment: its update is zero.
///
/// # Cost
///
/// Two floats of state per parameter. Fuses; reads no parameters.
///
/// # Errors
///
/// `init` fails if `b1` or `b2` is not in `[0, 1)`, `eps` is negative or not finite, or `clip_value_fn` has an argument
/// that is.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::scale_by_adopt;
///
/// let optimizer = scale_by_adopt().b1(0.5).b2(0.5);
/// let params = vec![0.0_f64, 0.0];
/// let mut state = optimizer.init(&params)?;
/// // Half of 2/4 and, since ±1 is the limit, half of −1.
/// for (gradient, expected) in [([4.0, 1.0], [0.0, 0.0]), ([2.0, -3.0], [0.25, -0.5])] {
///     let updates = optimizer.update(&gradient.to_vec(), &mut state, &params)?;
///     assert_eq!(updates.to_vec::<f64>("").unwrap(), expected);
/// }
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Taniguchi and others, [ADOPT: modified Adam can converge with any β₂ with the optimal
/// rate](https://arxiv.org/abs/2411.02853), 2024, algorithm 2. Optax,
/// [`scale_by_adopt`](https://optax.readthedocs.io/en/latest/api/contrib.html). Differs: `clip_value_fn` is a
/// [`StepLimit`]; the first update is zero also where the gradient over `eps` overflows; moments of 16-bit leaves are
/// `f32` unless `mu_dtype` is set. PyTorch has none.
pub fn scale_by_adopt() -> ScaleByAdopt {
    ScaleByAdopt::with()
}

part! {
    /// See [`scale_by_adopt`].
    pub ScaleByAdopt as "scale_by_adopt": OneElement;
    hyperparams {
        /// Decay of the mean.
        b1: DECAY = 0.9;
        /// Decay of the second moment.
        b2: DECAY = 0.9999;
        /// Lower bound of the divisor.
        eps: NOT_NEGATIVE = 1e-6;
    }
    options {
        /// Dtype of the mean; by default the compute type.
        mu_dtype: Option<DType> = None;
        /// If true, the mean uses Nesterov momentum.
        nesterov: bool = false;
        /// If true, the quotients that enter the mean are clipped.
        use_clipping: bool = true;
        /// The limit at each step, counted from 0; by default the step's fourth root.
        clip_value_fn: StepLimit = StepLimit::Power(0.25);
    }
    check Self::check_limit;
    effect Self::effect_of;
}

impl ScaleByAdopt {
    fn effect_of(&self) -> Effect {
        Effect::SCALE_INVARIANT.with_momentum(&self.b1)
    }
}

impl ScaleByAdopt {
    fn check_limit(&self) -> Result<()> {
        match &self.clip_value_fn {
            StepLimit::Schedule(schedule) => schedule.validate(),
            StepLimit::Power(power) if power.is_finite() => Ok(()),
            StepLimit::Power(power) => Err(Error::argument(Self::NAME, "clip_value_fn", "a finite power", power)),
        }
    }
}

/// The limit of [`scale_by_adopt`] at each step, counted from 0.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum StepLimit {
    /// A power of the number of updates of the leaf: of the step, unless it [rested](crate::wrapper::freezable).
    Power(f64),
    /// The value of a schedule.
    Schedule(Schedule),
}

impl StepLimit {
    /// Returns the limit at a step.
    ///
    /// ```
    /// assert_eq!(gradchain::transform::StepLimit::Power(0.5).at(9), 3.0);
    /// ```
    pub fn at(&self, step: u64) -> f64 {
        match self {
            StepLimit::Power(power) => (step as f64).powf(*power),
            StepLimit::Schedule(schedule) => schedule.at(step),
        }
    }
}

impl<S: Into<Schedule>> From<S> for StepLimit {
    fn from(schedule: S) -> StepLimit {
        StepLimit::Schedule(schedule.into())
    }
}

impl ToRecipe for StepLimit {
    fn to_recipe(&self) -> Recipe {
        match self {
            StepLimit::Power(power) => Recipe::map([("power", Recipe::Number(*power))]),
            StepLimit::Schedule(schedule) => Recipe::map([("schedule", schedule.to_recipe())]),
        }
    }
}

impl FromRecipe for StepLimit {
    fn from_recipe(node: &Node<'_>) -> recipe::Result<StepLimit> {
        const FORMS: &str = "{\"power\": ..} or {\"schedule\": ..}";
        match node.single(FORMS)? {
            ("power", inside) => inside.read().map(StepLimit::Power),
            ("schedule", inside) => inside.read().map(StepLimit::Schedule),
            _ => Err(node.wrong(FORMS)),
        }
    }

    fn schema() -> String {
        r##"{"anyOf": [{"type": "object", "properties": {"power": {"type": "number"}}, "required": ["power"]},
                       {"$ref": "#/$defs/scheduled"}]}"##
            .into()
    }
}

/// Scalars of [`ScaleByAdopt`], computed once per step.
#[derive(Clone, Copy, Debug)]
pub struct AdoptScalars<C> {
    mean1: Mean<C>,
    mean2: Mean<C>,
    eps: C,
    limit: C,
    nesterov: bool,
}

impl Rule for ScaleByAdopt {
    const SLOTS: &'static [Slot] = &[Slot::signed("mu"), Slot::not_negative("nu")];
    type Slots<C: Real> = [C; 2];
    type Scalars<C: Real> = AdoptScalars<C>;

    fn scalars<C: Real>(&self, clock: Clock) -> AdoptScalars<C> {
        let first = clock.updates == 0;
        let [b1, b2, eps] = Hyperparam::all_at([&self.b1, &self.b2, &self.eps], clock.count);
        let limit = match self.use_clipping {
            // Zero in the first step, against zero times infinity.
            _ if first => 0.0,
            // A power counts the leaf's updates, as its means do.
            true if matches!(self.clip_value_fn, StepLimit::Power(_)) => self.clip_value_fn.at(clock.updates),
            true => self.clip_value_fn.at(clock.count),
            false => f64::INFINITY,
        };
        AdoptScalars {
            mean1: Mean::of(if first { 1.0 } else { b1 }),
            mean2: Mean::of(if first { 0.0 } else { b2 }),
            eps: C::of(eps),
            limit: C::of(limit),
            nesterov: self.nesterov,
        }
    }

    // `min` and `max` would drop NaN.
    #[inline(always)]
    fn apply<C: Real>(k: AdoptScalars<C>, [mu, nu]: &mut [C; 2], u: C, _: C) -> C {
        let root = nu.sqrt();
        let x = u / if root <= k.eps { k.eps } else { root };
        let x = if x > k.limit { k.limit } else { x };
        let x = if x < -k.limit { -k.limit } else { x };
        *mu = k.mean1.with(*mu, x);
        *nu = k.mean2.with(*nu, u * u);
        if k.nesterov { k.mean1.with(*mu, x) } else { *mu }
    }
}
