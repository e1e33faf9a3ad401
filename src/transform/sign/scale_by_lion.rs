use crate::element::{DType, Real};
use crate::engine::{
    InitContext, Place, Shape, SlotJob, SlotList, Span, Stage, StepContext, Tile, fused_tile, slot_tile,
};
use crate::error::Result;
use crate::macros::builder;
use crate::recipe::{Recipe, ToRecipe};
use crate::schedule::Hyperparam;
use crate::state::{Count, Moments};
use crate::wrapper::{Arguments, state_fields};

/// Replaces updates by the sign of their mix with a running mean.
///
/// # Arithmetic
///
/// ```text
/// x = b1·mu + (1 − b1)·u
/// mu ← b2·mu + (1 − b2)·u                 starts at 0
/// u ← sign(x)                             mode hard: −1, 0 or 1
///     tanh(smooth_beta·x)                 mode smooth
///     x if |x| < 1, else sign(x)          mode refined
/// ```
///
/// # Cost
///
/// One float of state for each parameter. Fuses, but for mode smooth, which is not vectorised; reads no parameters.
///
/// # Errors
///
/// `init` fails if `b1` or `b2` is not in `[0, 1]`, or `smooth_beta` is not finite.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
///
/// let optimizer = scale_by_lion();
/// let mut params = vec![0.0_f32; 3];
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &vec![1e-3_f32, -5.0, 0.0], &mut state)?;
/// assert_eq!(params, [1.0, -1.0, 0.0]);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Chen and others, [Symbolic discovery of optimization algorithms](https://arxiv.org/abs/2302.06675), 2023, program 1.
/// Optax, [`scale_by_lion`](https://optax.readthedocs.io/en/latest/api/transformations.html). Differs: the mean of a
/// 16-bit leaf is `f32` unless `mu_dtype` asks otherwise.
pub fn scale_by_lion() -> ScaleByLion {
    ScaleByLion { b1: 0.9.into(), b2: 0.99.into(), mu_dtype: None, mode: LionMode::default(), smooth_beta: 1.0.into() }
}

/// See [`scale_by_lion`].
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a transformation does nothing until it is given gradients"]
pub struct ScaleByLion {
    /// The mean's share in the mix, in `[0, 1]`.
    pub b1: Hyperparam,
    /// Decay of the mean, in `[0, 1]`.
    pub b2: Hyperparam,
    /// Type of the mean; by default the one that arithmetic is done in.
    pub mu_dtype: Option<DType>,
    /// What stands for the sign.
    pub mode: LionMode,
    /// The slope at zero of mode smooth; not used in the others.
    pub smooth_beta: Hyperparam,
}

builder! {
    ScaleByLion as "scale_by_lion" {
        hyperparams: b1, b2, smooth_beta;
        options: mu_dtype: Option<DType>, mode: LionMode;
    }
}

/// What [`scale_by_lion`] takes for the sign.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LionMode {
    /// −1, 0 or 1.
    #[default]
    Hard,
    /// A hyperbolic tangent.
    Smooth,
    /// The number itself, limited to −1 and 1.
    Refined,
}

impl LionMode {
    /// The mode of this name, if there is one: `hard`, `smooth`, `refined`.
    pub fn from_name(name: &str) -> Option<LionMode> {
        match name {
            "hard" => Some(LionMode::Hard),
            "smooth" => Some(LionMode::Smooth),
            "refined" => Some(LionMode::Refined),
            _ => None,
        }
    }
}

/// What a [`scale_by_lion`] remembers.
#[derive(Clone, Debug)]
pub struct ScaleByLionState {
    /// Steps done.
    pub count: Count,
    /// The running mean.
    pub mu: Moments,
}

state_fields!(ScaleByLionState<> { count, mu });

/// What [`ScaleByLion`] works out once a step.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct LionScalars<C> {
    keep1: C,
    take1: C,
    keep2: C,
    take2: C,
    /// Below this, a number stands for its own sign: 1 in mode refined, 0 in mode hard.
    linear_below: C,
    smooth_beta: C,
}

impl<C: Real> LionScalars<C> {
    /// The mix; moves the mean on.
    #[inline(always)]
    fn mix(&self, mu: &mut C, u: C) -> C {
        let x = self.keep1 * *mu + self.take1 * u;
        *mu = self.keep2 * *mu + self.take2 * u;
        x
    }
}

/// Not a rule, because of mode smooth: a hyperbolic tangent is a call, and would keep the other modes from vectorising
/// if it were in the same loop.
impl Stage for ScaleByLion {
    type Needs = crate::needs::Nothing;
    type State = ScaleByLionState;
    type Run = LionScalars<f64>;
    type Kernel<C: Real> = LionScalars<C>;

    const SHAPE: Shape = Shape::elementwise(true, false);
    const FUSES: bool = true;
    const SLOTS: usize = 1;

    fn validate(&self) -> Result<()> {
        for (name, beta) in [("b1", &self.b1), ("b2", &self.b2)] {
            beta.validate(Self::NAME, name, "in [0, 1]", |x| (0.0..=1.0).contains(&x))?;
        }
        self.smooth_beta.validate(Self::NAME, "smooth_beta", "finite", f64::is_finite)
    }

    fn init_state(&self, at: &InitContext<'_>) -> Result<ScaleByLionState> {
        Ok(ScaleByLionState { count: Count::default(), mu: at.moments_of(self.mu_dtype)? })
    }

    fn begin(&self, state: &mut ScaleByLionState, _: &StepContext<'_>) -> LionScalars<f64> {
        let [b1, b2, smooth_beta] = [&self.b1, &self.b2, &self.smooth_beta].map(|h| h.at(state.count.get()));
        state.count.increment();
        let linear_below = if self.mode == LionMode::Refined { 1.0 } else { 0.0 };
        LionScalars { keep1: b1, take1: 1.0 - b1, keep2: b2, take2: 1.0 - b2, linear_below, smooth_beta }
    }

    fn tile<C: Real>(
        &self,
        state: &ScaleByLionState,
        run: &LionScalars<f64>,
        place: Place,
        span: Span,
        tile: &mut Tile<'_, C>,
    ) {
        if self.mode != LionMode::Smooth {
            fused_tile(self, state, run, place, span, tile);
        } else if span.has(place.at) {
            slot_tile(&state.mu, tile, Smooth(self.kernel(state, run, tile.leaf)));
        }
    }

    fn fuses_now(&self, _: &ScaleByLionState, _: &LionScalars<f64>, _: usize) -> bool {
        self.mode != LionMode::Smooth
    }

    #[inline]
    fn kernel<C: Real>(&self, _: &ScaleByLionState, run: &LionScalars<f64>, _: usize) -> LionScalars<C> {
        LionScalars {
            keep1: C::of(run.keep1),
            take1: C::of(run.take1),
            keep2: C::of(run.keep2),
            take2: C::of(run.take2),
            linear_below: C::of(run.linear_below).max(C::of_smallest()),
            smooth_beta: C::of(run.smooth_beta),
        }
    }

    fn slots(&self, state: &ScaleByLionState, leaf: usize, list: &mut SlotList) {
        list.push(&state.mu, leaf);
    }

    #[inline(always)]
    fn apply<C: Real>(k: &LionScalars<C>, at: usize, span: Span, slots: &mut [C], u: C, _: C, _: &mut [u32]) -> C {
        if !span.has(at) {
            return u;
        }
        let x = k.mix(&mut slots[0], u);
        // One choice: zero and NaN are not above it either.
        if x.abs() >= k.linear_below { C::one().copysign(x) } else { x }
    }

    fn state_bytes(&self, state: &ScaleByLionState, leaf: usize, at: usize, span: Span) -> usize {
        if span.has(at) { state.mu.dtype(leaf).map_or(0, |dtype| 2 * dtype.size()) } else { 0 }
    }

    fn recipe(&self) -> crate::recipe::Recipe {
        crate::recipe::of_arguments(self)
    }

    fn describe(&self) -> String {
        Self::NAME.into()
    }
}

/// Mode smooth on a tile.
struct Smooth<C>(LionScalars<C>);

impl<C: Real> SlotJob<C> for Smooth<C> {
    #[inline(always)]
    fn run(self, u: &mut [C], _: &[C], mu: &mut [C]) {
        for (u, mu) in u.iter_mut().zip(mu) {
            *u = (self.0.smooth_beta * self.0.mix(mu, *u)).tanh();
        }
    }
}

impl ToRecipe for LionMode {
    fn to_recipe(&self) -> Recipe {
        Recipe::text(match self {
            LionMode::Hard => "hard",
            LionMode::Smooth => "smooth",
            LionMode::Refined => "refined",
        })
    }
}
