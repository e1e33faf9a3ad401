use crate::element::{DType, Real};
use crate::engine::{Clock, Rule};
use crate::error::Result;
use crate::schedule::Hyperparam;
use crate::wrapper::{Argument, Arguments};

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
/// One float of state for each parameter. Fuses; reads no parameters. Which mode it is, is in the type, so that the loop
/// need not ask; that of mode smooth is not vectorised.
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
/// 16-bit leaf is `f32` unless `mu_dtype` asks otherwise; a mode is a type, not a string.
pub fn scale_by_lion() -> ScaleByLion {
    ScaleByLion { b1: 0.9.into(), b2: 0.99.into(), mu_dtype: None, mode: LionHard, smooth_beta: 1.0.into() }
}

/// See [`scale_by_lion`].
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a transformation does nothing until it is given gradients"]
pub struct ScaleByLion<M = LionHard> {
    /// The mean's share in the mix, in `[0, 1]`.
    pub b1: Hyperparam,
    /// Decay of the mean, in `[0, 1]`.
    pub b2: Hyperparam,
    /// Type of the mean; by default the one that arithmetic is done in.
    pub mu_dtype: Option<DType>,
    /// What stands for the sign.
    pub mode: M,
    /// The slope at zero of mode smooth; not used in the others.
    pub smooth_beta: Hyperparam,
}

impl<M> ScaleByLion<M> {
    /// Sets [`b1`](struct@ScaleByLion).
    pub fn b1(mut self, b1: impl Into<Hyperparam>) -> Self {
        self.b1 = b1.into();
        self
    }

    /// Sets [`b2`](struct@ScaleByLion).
    pub fn b2(mut self, b2: impl Into<Hyperparam>) -> Self {
        self.b2 = b2.into();
        self
    }

    /// Sets [`mu_dtype`](struct@ScaleByLion).
    pub fn mu_dtype(mut self, mu_dtype: impl Into<Option<DType>>) -> Self {
        self.mu_dtype = mu_dtype.into();
        self
    }

    /// Sets [`mode`](struct@ScaleByLion): [`LionHard`], [`LionSmooth`] or [`LionRefined`].
    pub fn mode<N: LionMode>(self, mode: N) -> ScaleByLion<N> {
        ScaleByLion { b1: self.b1, b2: self.b2, mu_dtype: self.mu_dtype, mode, smooth_beta: self.smooth_beta }
    }

    /// Sets [`smooth_beta`](struct@ScaleByLion).
    pub fn smooth_beta(mut self, smooth_beta: impl Into<Hyperparam>) -> Self {
        self.smooth_beta = smooth_beta.into();
        self
    }
}

impl<M: LionMode> Arguments for ScaleByLion<M> {
    const NAME: &'static str = "scale_by_lion";

    fn arguments(&mut self, visit: &mut dyn FnMut(&'static str, Argument<'_>)) {
        visit("b1", Argument::Hyperparam(&mut self.b1));
        visit("b2", Argument::Hyperparam(&mut self.b2));
        visit("smooth_beta", Argument::Hyperparam(&mut self.smooth_beta));
        visit("mu_dtype", Argument::Static);
        visit("mode", Argument::Static);
    }
}

/// What [`scale_by_lion`] takes for the sign.
pub trait LionMode: Clone + core::fmt::Debug + Send + Sync + 'static {
    /// The sign, or what stands for it, of a mix. Write `#[inline(always)]` on it.
    fn sign<C: Real>(x: C, smooth_beta: C) -> C;
}

/// Mode hard of [`scale_by_lion`]: −1, 0 or 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LionHard;

/// Mode smooth of [`scale_by_lion`]: a hyperbolic tangent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LionSmooth;

/// Mode refined of [`scale_by_lion`]: the number itself, limited to −1 and 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LionRefined;

impl LionMode for LionHard {
    // NaN for NaN, and unlike `signum` 0 for 0.
    #[inline(always)]
    fn sign<C: Real>(x: C, _: C) -> C {
        let up = if x > C::zero() { C::one() } else { x };
        if x < C::zero() { -C::one() } else { up }
    }
}

impl LionMode for LionSmooth {
    #[inline(always)]
    fn sign<C: Real>(x: C, smooth_beta: C) -> C {
        (smooth_beta * x).tanh()
    }
}

impl LionMode for LionRefined {
    #[inline(always)]
    fn sign<C: Real>(x: C, _: C) -> C {
        let x = if x > C::one() { C::one() } else { x };
        if x < -C::one() { -C::one() } else { x }
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
}

impl<M: LionMode> Rule for ScaleByLion<M> {
    const NAME: &'static str = "scale_by_lion";
    const SLOTS: &'static [&'static str] = &["mu"];
    type Slots<C: Real> = [C; 1];
    type Scalars<C: Real> = LionScalars<C>;

    fn validate(&self) -> Result<()> {
        for (name, beta) in [("b1", &self.b1), ("b2", &self.b2)] {
            beta.validate(<Self as Rule>::NAME, name, "in [0, 1]", |x| (0.0..=1.0).contains(&x))?;
        }
        self.smooth_beta.validate(<Self as Rule>::NAME, "smooth_beta", "finite", f64::is_finite)
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
        }
    }

    #[inline(always)]
    fn apply<C: Real>(k: LionScalars<C>, [mu]: &mut [C; 1], u: C, _: C) -> C {
        let x = k.keep1 * *mu + k.take1 * u;
        *mu = k.keep2 * *mu + k.take2 * u;
        M::sign(x, k.smooth_beta)
    }
}
