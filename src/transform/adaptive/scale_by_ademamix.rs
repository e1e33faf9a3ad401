use crate::element::{DType, Real};
use crate::engine::{Clock, Rule};
use crate::error::Result;
use crate::macros::builder;
use crate::schedule::Hyperparam;
use crate::transform::moment::{Mean, check_decays, check_finite, check_not_negative};

/// Divides a mix of a fast and a slow running mean of the updates by the root of a running mean of their squares.
///
/// # Arithmetic
///
/// Per element, at step `t`, counted from 1:
///
/// ```text
/// m1 ← b1·m1 + (1 − b1)·u              fast, starts at 0
/// m2 ← b3·m2 + (1 − b3)·u              slow, starts at 0
/// nu ← b2·nu + (1 − b2)·u²             starts at 0
/// u ← (m1 / (1 − b1ᵗ) + alpha·m2) / (√(nu / (1 − b2ᵗ) + eps_root) + eps)
/// ```
///
/// The slow mean keeps its start at zero. The paper lets `alpha` and `b3` grow over the first steps: give schedules.
///
/// # Cost
///
/// Three floats of state for each parameter. Fuses; reads no parameters.
///
/// # Errors
///
/// `init` fails if `b1` or `b2` is not in `[0, 1)`, `b3` is not in `[0, 1]`, `eps` or `eps_root` is negative or not
/// finite, or `alpha` is not finite.
///
/// # Example
///
/// The fast mean, freed of its start, is the gradient; the slow one is half of it, and counts twice:
///
/// ```
/// use gradchain::prelude::*;
///
/// let optimizer = scale_by_ademamix().b3(0.5).alpha(2.0).eps(0.0);
/// let params = 0.0_f64;
/// let updates = optimizer.update(&8.0_f64, &mut optimizer.init(&params)?, &params)?;
/// approx::assert_relative_eq!(updates.to_vec::<f64>("").unwrap()[0], 2.0, max_relative = 1e-12);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Pagliardini, Ablin and Grangier, [The AdEMAMix optimizer: better, faster, older](https://arxiv.org/abs/2409.03137),
/// 2024, algorithm 1. Optax, [`scale_by_ademamix`](https://optax.readthedocs.io/en/latest/api/contrib.html). Differs:
/// `mu_dtype` is the type of all three arrays at every step, where in Optax it is that of their zeros before the first,
/// and promotion undoes it; state of 16-bit leaves is `f32` unless it asks otherwise. PyTorch has none.
pub fn scale_by_ademamix() -> ScaleByAdemamix {
    ScaleByAdemamix {
        b1: 0.9.into(),
        b2: 0.999.into(),
        b3: 0.9999.into(),
        alpha: 6.0.into(),
        eps: 1e-8.into(),
        eps_root: 0.0.into(),
        mu_dtype: None,
    }
}

/// See [`scale_by_ademamix`].
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a transformation does nothing until it is given gradients"]
pub struct ScaleByAdemamix {
    /// Decay of the fast mean, in `[0, 1)`.
    pub b1: Hyperparam,
    /// Decay of the second moment, in `[0, 1)`.
    pub b2: Hyperparam,
    /// Decay of the slow mean, in `[0, 1]`.
    pub b3: Hyperparam,
    /// How much the slow mean counts.
    pub alpha: Hyperparam,
    /// Added to the root; not negative.
    pub eps: Hyperparam,
    /// Added under the root; not negative.
    pub eps_root: Hyperparam,
    /// Type of the state; by default the one that arithmetic is done in.
    pub mu_dtype: Option<DType>,
}

builder! {
    ScaleByAdemamix as "scale_by_ademamix" {
        hyperparams: b1, b2, b3, alpha, eps, eps_root;
        options: mu_dtype: Option<DType>;
    }
}

/// What [`ScaleByAdemamix`] works out once a step.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct AdemamixScalars<C> {
    fast: Mean<C>,
    slow: Mean<C>,
    squares: Mean<C>,
    unbias1: C,
    unbias2: C,
    alpha: C,
    eps: C,
    eps_root: C,
}

impl Rule for ScaleByAdemamix {
    const NAME: &'static str = "scale_by_ademamix";
    crate::recipe::recipe_of_arguments!();
    const SLOTS: &'static [&'static str] = &["m1", "m2", "nu"];
    type Slots<C: Real> = [C; 3];
    type Scalars<C: Real> = AdemamixScalars<C>;

    fn validate(&self) -> Result<()> {
        check_decays(Self::NAME, [("b1", &self.b1), ("b2", &self.b2)])?;
        self.b3.validate(Self::NAME, "b3", "in [0, 1]", |x| (0.0..=1.0).contains(&x))?;
        check_finite(Self::NAME, [("alpha", &self.alpha)])?;
        check_not_negative(Self::NAME, [("eps", &self.eps), ("eps_root", &self.eps_root)])
    }

    fn slot_dtype(&self, _: usize) -> Option<DType> {
        self.mu_dtype
    }

    fn scalars<C: Real>(&self, clock: Clock) -> AdemamixScalars<C> {
        let [b1, b2, b3] = [&self.b1, &self.b2, &self.b3].map(|h| h.at(clock.count));
        AdemamixScalars {
            fast: Mean::of(b1),
            slow: Mean::of(b3),
            squares: Mean::of(b2),
            unbias1: C::of(1.0 / clock.bias_correction(b1)),
            unbias2: C::of(1.0 / clock.bias_correction(b2)),
            alpha: C::of(self.alpha.at(clock.count)),
            eps: C::of(self.eps.at(clock.count)),
            eps_root: C::of(self.eps_root.at(clock.count)),
        }
    }

    #[inline(always)]
    fn apply<C: Real>(k: AdemamixScalars<C>, [m1, m2, nu]: &mut [C; 3], u: C, _: C) -> C {
        *m1 = k.fast.with(*m1, u);
        *m2 = k.slow.with(*m2, u);
        *nu = k.squares.with(*nu, u * u);
        (k.unbias1 * *m1 + k.alpha * *m2) / ((k.unbias2 * *nu + k.eps_root).sqrt() + k.eps)
    }
}
