use crate::part::prelude::*;
use crate::transform::moment::{Mean, first_moment};

/// Divides a running mean of the updates by the root of their squared differences from it.
///
/// # Arithmetic
///
/// Per element, at step `t`, counted from 1:
///
/// ```text
/// mu ← b1·mu + (1 − b1)·u                           starts at 0
/// nu ← b2·nu + (1 − b2)·(u − mu)² + eps_root        starts at 0
/// m̂ = mu / (1 − b1ᵗ)           or, with nesterov: b1·mu / (1 − b1ᵗ⁺¹) + (1 − b1)·u / (1 − b1ᵗ)
/// u ← m̂ / (√(nu / (1 − b2ᵗ)) + eps)
/// ```
///
/// # Cost
///
/// Two floats of state per parameter. Fuses; reads no parameters.
///
/// # Errors
///
/// `init` fails if `b1` or `b2` is not in `[0, 1)`, or `eps` or `eps_root` is negative or not finite.
///
/// # Example
///
/// After a first gradient of 8 the mean is 4, and the gradient differs from it by 4:
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::scale_by_belief;
///
/// let optimizer = scale_by_belief().b1(0.5).b2(0.5).eps(0.0).eps_root(0.0);
/// let params = 0.0_f64;
/// let updates = optimizer.update(&8.0_f64, &mut optimizer.init(&params)?, &params)?;
/// assert_eq!(updates.to_vec::<f64>("").unwrap(), [2.0]);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Zhuang and others, [AdaBelief optimizer: adapting stepsizes by the belief in observed
/// gradients](https://arxiv.org/abs/2010.07468), 2020, algorithm 2, where `eps` and `eps_root` are one number. Optax,
/// [`scale_by_belief`](https://optax.readthedocs.io/en/latest/api/transformations.html). Differs: moments of 16-bit
/// leaves are `f32`. PyTorch has none.
pub fn scale_by_belief() -> ScaleByBelief {
    ScaleByBelief::with()
}

part! {
    /// See [`scale_by_belief`].
    pub ScaleByBelief as "scale_by_belief": OneElement;
    hyperparams {
        /// Decay of the mean.
        b1: DECAY = 0.9;
        /// Decay of the mean of squared differences.
        b2: DECAY = 0.999;
        /// Added to the root.
        eps: NOT_NEGATIVE = 1e-16;
        /// Added to the mean of squared differences at every step.
        eps_root: NOT_NEGATIVE = 1e-16;
    }
    options {
        /// If true, the mean uses Nesterov momentum.
        nesterov: bool = false;
    }
    effect Self::effect_of;
}

impl ScaleByBelief {
    fn effect_of(&self) -> Effect {
        Effect::SCALE_INVARIANT.with_momentum(&self.b1)
    }
}

/// Scalars of [`ScaleByBelief`], computed once per step.
#[derive(Clone, Copy, Debug)]
pub struct BeliefScalars<C> {
    mean1: Mean<C>,
    mean2: Mean<C>,
    mean_weight: C,
    update_weight: C,
    unbias2: C,
    eps: C,
    eps_root: C,
}

impl Rule for ScaleByBelief {
    const SLOTS: &'static [Slot] = &[Slot::signed("mu"), Slot::not_negative("nu")];
    type Slots<C: Real> = [C; 2];
    type Scalars<C: Real> = BeliefScalars<C>;

    fn scalars<C: Real>(&self, clock: Clock) -> BeliefScalars<C> {
        let [b1, b2, eps, eps_root] = Hyperparam::all_at([&self.b1, &self.b2, &self.eps, &self.eps_root], clock.count);
        let (mean_weight, update_weight) = first_moment(clock, b1, self.nesterov);
        BeliefScalars {
            mean1: Mean::of(b1),
            mean2: Mean::of(b2),
            mean_weight: C::of(mean_weight),
            update_weight: C::of(update_weight),
            unbias2: C::of(1.0 / clock.bias_correction(b2)),
            eps: C::of(eps),
            eps_root: C::of(eps_root),
        }
    }

    #[inline(always)]
    fn apply<C: Real>(k: BeliefScalars<C>, [mu, nu]: &mut [C; 2], u: C, _: C) -> C {
        *mu = k.mean1.with(*mu, u);
        let deviation = u - *mu;
        *nu = k.mean2.with(*nu, deviation * deviation) + k.eps_root;
        let ahead = k.mean_weight * *mu + k.update_weight * u;
        ahead / ((k.unbias2 * *nu).sqrt() + k.eps)
    }
}
