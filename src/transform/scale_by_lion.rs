use crate::element::{DType, Real};
use crate::engine::{Clock, Rule};
use crate::error::Result;
use crate::macros::builder;
use crate::schedule::Hyperparam;

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
/// One float of state for each parameter. Fuses; reads no parameters.
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

/// What [`ScaleByLion`] works out once a step.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct LionScalars<C> {
    keep1: C,
    take1: C,
    keep2: C,
    take2: C,
    smooth_beta: C,
    mode: LionMode,
}

impl Rule for ScaleByLion {
    const NAME: &'static str = "scale_by_lion";
    const SLOTS: &'static [&'static str] = &["mu"];
    type Slots<C: Real> = [C; 1];
    type Scalars<C: Real> = LionScalars<C>;

    fn validate(&self) -> Result<()> {
        for (name, beta) in [("b1", &self.b1), ("b2", &self.b2)] {
            beta.validate(Self::NAME, name, "in [0, 1]", |x| (0.0..=1.0).contains(&x))?;
        }
        self.smooth_beta.validate(Self::NAME, "smooth_beta", "finite", f64::is_finite)
    }

    fn slot_dtype(&self, _: usize) -> Option<DType> {
        self.mu_dtype
    }

    fn scalars<C: Real>(&self, clock: Clock) -> LionScalars<C> {
        let [b1, b2] = [&self.b1, &self.b2].map(|b| b.at(clock.count));
        LionScalars {
            keep1: C::of(b1),
            take1: C::of(1.0 - b1),
            keep2: C::of(b2),
            take2: C::of(1.0 - b2),
            smooth_beta: C::of(self.smooth_beta.at(clock.count)),
            mode: self.mode,
        }
    }

    #[inline(always)]
    fn apply<C: Real>(k: LionScalars<C>, [mu]: &mut [C; 1], u: C, _: C) -> C {
        let x = k.keep1 * *mu + k.take1 * u;
        *mu = k.keep2 * *mu + k.take2 * u;
        match k.mode {
            LionMode::Hard => sign(x),
            LionMode::Smooth => (k.smooth_beta * x).tanh(),
            LionMode::Refined => limited(x),
        }
    }
}

/// −1, 0 or 1, and NaN for NaN; `signum` has no 0.
#[inline(always)]
fn sign<C: Real>(x: C) -> C {
    let up = if x > C::zero() { C::one() } else { x };
    if x < C::zero() { -C::one() } else { up }
}

#[inline(always)]
fn limited<C: Real>(x: C) -> C {
    let x = if x > C::one() { C::one() } else { x };
    if x < -C::one() { -C::one() } else { x }
}
