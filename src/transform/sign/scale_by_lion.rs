use crate::internal::engine::{LeafSlice, OneElementWithMemory, RuleWithMemory};
use crate::internal::recipe::words;
use crate::internal::state::state_fields;
use crate::part::prelude::*;

/// Replaces updates by the sign of their interpolation with a running mean.
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
/// One float of state per parameter. Fuses, except in mode smooth, which does not vectorize; reads no parameters.
///
/// # Errors
///
/// `init` fails if `b1` or `b2` is not in `[0, 1]`, or `smooth_beta` is not finite.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::scale_by_lion;
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
/// 16-bit leaf is `f32` unless `mu_dtype` is set.
pub fn scale_by_lion() -> ScaleByLion {
    ScaleByLion::with()
}

part! {
    /// See [`scale_by_lion`].
    pub ScaleByLion as "scale_by_lion": OneElementWithMemory;
    hyperparams {
        /// Weight of the running mean in the interpolation.
        b1: UNIT_INTERVAL = 0.9;
        /// Decay of the mean.
        b2: UNIT_INTERVAL = 0.99;
        /// The slope at zero of mode smooth; not used in the others.
        smooth_beta: FINITE = 1.0;
    }
    options {
        /// Dtype of the mean; by default the compute type.
        mu_dtype: Option<DType> = None;
        /// The replacement of the sign.
        mode: LionMode = LionMode::Hard;
    }
    effect Self::effect_of;
}

impl ScaleByLion {
    fn effect_of(&self) -> Effect {
        Effect::SCALE_INVARIANT.with_momentum(&self.b1)
    }
}

/// The replacement of the sign in [`scale_by_lion`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LionMode {
    /// −1, 0 or 1.
    #[default]
    Hard,
    /// A hyperbolic tangent.
    Smooth,
    /// The number itself, clipped to −1 and 1.
    Refined,
}

words!(LionMode { Hard = "hard", Smooth = "smooth", Refined = "refined" });

/// The state of [`scale_by_lion`] besides the running mean, `mu`.
#[derive(Clone, Debug, Default)]
pub struct ScaleByLionState {
    /// Steps done.
    pub count: Count,
    scalars: LionScalars<f64>,
}

state_fields!(ScaleByLionState { count });

/// Scalars of [`ScaleByLion`], computed once per step.
#[derive(Clone, Copy, Debug, Default)]
pub struct LionScalars<C> {
    mix_decay: C,
    mix_weight: C,
    mean_decay: C,
    mean_weight: C,
    /// Numbers up to this size stay in place of their sign: 1 in mode refined, 0 in mode hard.
    linear_below: C,
    smooth_beta: C,
}

impl<C: Real> LionScalars<C> {
    /// Returns the interpolation, and advances the mean.
    #[inline(always)]
    fn mix(&self, mu: &mut C, u: C) -> C {
        let x = self.mix_decay * *mu + self.mix_weight * u;
        *mu = self.mean_decay * *mu + self.mean_weight * u;
        x
    }
}

impl RuleWithMemory for ScaleByLion {
    const USES_SLICES: bool = true;
    const SLOTS: &'static [Slot] = &[Slot::signed("mu")];
    type Memory = ScaleByLionState;
    type Slots<C: Real> = [C; 1];
    type Scalars<C: Real> = LionScalars<C>;

    fn start(&self, _: &InitContext<'_>) -> Result<ScaleByLionState> {
        Ok(ScaleByLionState::default())
    }

    fn begin(&self, memory: &mut ScaleByLionState, _: &StepContext<'_>) {
        let [b1, b2, smooth_beta] = Hyperparam::all_at([&self.b1, &self.b2, &self.smooth_beta], memory.count.get());
        memory.count.increment();
        let linear_below = if self.mode == LionMode::Refined { 1.0 } else { 0.0 };
        memory.scalars = LionScalars {
            mix_decay: b1,
            mix_weight: 1.0 - b1,
            mean_decay: b2,
            mean_weight: 1.0 - b2,
            linear_below,
            smooth_beta,
        };
    }

    fn scalars<C: Real>(&self, memory: &ScaleByLionState, _: usize) -> LionScalars<C> {
        let scalars = memory.scalars;
        LionScalars {
            mix_decay: C::of(scalars.mix_decay),
            mix_weight: C::of(scalars.mix_weight),
            mean_decay: C::of(scalars.mean_decay),
            mean_weight: C::of(scalars.mean_weight),
            linear_below: C::of(scalars.linear_below),
            smooth_beta: C::of(scalars.smooth_beta),
        }
    }

    #[inline(always)]
    fn apply<C: Real>(k: LionScalars<C>, [mu]: &mut [C; 1], u: C, _: C, _: &mut [u32]) -> C {
        let x = k.mix(mu, u);
        // One selection: zero and NaN fail the comparison too, and a number of that size is its own sign.
        if x.abs() > k.linear_below { C::one().copysign(x) } else { x }
    }

    // Mode smooth has its own loop: its call of `tanh` would keep the others from vectorizing.
    fn uses_slices(&self, _: &ScaleByLionState, _: usize) -> bool {
        self.mode == LionMode::Smooth
    }

    #[inline(always)]
    fn apply_slice<C: Real>(
        &self,
        _: &ScaleByLionState,
        k: LionScalars<C>,
        [mu]: [&mut [C]; 1],
        LeafSlice { u, .. }: LeafSlice<'_, C>,
    ) {
        for i in 0..u.len() {
            u[i] = (k.smooth_beta * k.mix(&mut mu[i], u[i])).tanh();
        }
    }
}
