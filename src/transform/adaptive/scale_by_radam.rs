use crate::part::prelude::*;
use crate::transform::moment::{Mean, first_moment};

/// Scales updates as Adam does, but emits the running mean alone until the second moment is reliable.
///
/// # Arithmetic
///
/// Per element, at step `t`, counted from 1:
///
/// ```text
/// mu ← b1·mu + (1 − b1)·u                starts at 0
/// nu ← b2·nu + (1 − b2)·u²               starts at 0
/// m̂ = mu / (1 − b1ᵗ)                     or, with nesterov: b1·mu / (1 − b1ᵗ⁺¹) + (1 − b1)·u / (1 − b1ᵗ)
/// ρ∞ = 2 / (1 − b2) − 1
/// ρ = ρ∞ − 2·t·b2ᵗ / (1 − b2ᵗ)           effective number of gradients in the second moment
/// r = √((ρ − 4)·(ρ − 2)·ρ∞ / ((ρ∞ − 4)·(ρ∞ − 2)·ρ))
/// u ← r·m̂ / (√(nu / (1 − b2ᵗ) + eps_root) + eps)        if ρ ≥ threshold, else m̂
/// ```
///
/// # Cost
///
/// Two floats of state per parameter. Fuses; reads no parameters.
///
/// # Errors
///
/// `init` fails if `b1` or `b2` is not in `[0, 1)`, `eps` or `eps_root` is negative or not finite, or `threshold` is
/// less than 4, where `r` is not a number.
///
/// # Example
///
/// The first update is the gradient itself:
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::scale_by_radam;
///
/// let optimizer = scale_by_radam();
/// let params = vec![0.0_f64, 0.0];
/// let updates = optimizer.update(&vec![1e-3_f64, -5.0], &mut optimizer.init(&params)?, &params)?;
/// approx::assert_relative_eq!(&updates.to_vec::<f64>("").unwrap()[..], &[1e-3, -5.0][..], max_relative = 1e-12);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Liu and others, [On the variance of the adaptive learning rate and beyond](https://arxiv.org/abs/1908.03265), 2019,
/// algorithm 2, with a threshold of 4. Optax,
/// [`scale_by_radam`](https://optax.readthedocs.io/en/latest/api/transformations.html). Differs: `ρ` is computed in
/// `f64`, so that rectification starts at the exact step (with the default `b2`, `f32` leaves two or three digits);
/// moments of 16-bit leaves are `f32`. PyTorch's `RAdam` rectifies where `ρ > 5`, and adds `eps` to the root of the
/// second moment before bias correction.
pub fn scale_by_radam() -> ScaleByRadam {
    ScaleByRadam::with()
}

part! {
    /// See [`scale_by_radam`].
    pub ScaleByRadam as "scale_by_radam": OneElement;
    hyperparams {
        /// Decay of the first moment.
        b1: DECAY = 0.9;
        /// Decay of the second moment.
        b2: DECAY = 0.999;
        /// Added to the root.
        eps: NOT_NEGATIVE = 1e-8;
        /// Added under the root.
        eps_root: NOT_NEGATIVE = 0.0;
        /// Minimum effective number of gradients for which the second moment is the divisor.
        threshold: AT_LEAST_4 = 5.0;
    }
    options {
        /// If true, the first moment uses Nesterov momentum.
        nesterov: bool = false;
    }
    effect Self::effect_of;
}

impl ScaleByRadam {
    fn effect_of(&self) -> Effect {
        Effect::SCALE_INVARIANT.with_momentum(&self.b1)
    }
}

/// Scalars of [`ScaleByRadam`], computed once per step.
#[derive(Clone, Copy, Debug)]
pub struct RadamScalars<C> {
    mean1: Mean<C>,
    mean2: Mean<C>,
    mean_weight: C,
    nesterov: bool,
    update_weight: C,
    unbias2: C,
    rectify: bool,
    rectifier: C,
    eps: C,
    eps_root: C,
}

impl Rule for ScaleByRadam {
    const SLOTS: &'static [Slot] = &[Slot::signed("mu"), Slot::not_negative("nu")];
    type Slots<C: Real> = [C; 2];
    type Scalars<C: Real> = RadamScalars<C>;

    fn scalars<C: Real>(&self, clock: Clock) -> RadamScalars<C> {
        let [b1, b2, eps, eps_root] = Hyperparam::all_at([&self.b1, &self.b2, &self.eps, &self.eps_root], clock.count);
        let (mean_weight, update_weight) = first_moment(clock, b1, self.nesterov);
        let unbias2 = 1.0 / clock.bias_correction(b2);
        let most = 2.0 / (1.0 - b2) - 1.0;
        let known = most - 2.0 * clock.t() * b2.powf(clock.t()) * unbias2;
        let squared = (known - 4.0) * (known - 2.0) * most / ((most - 4.0) * (most - 2.0) * known);
        RadamScalars {
            mean1: Mean::of(b1),
            mean2: Mean::of(b2),
            mean_weight: C::of(mean_weight),
            nesterov: self.nesterov,
            update_weight: C::of(update_weight),
            unbias2: C::of(unbias2),
            rectify: known >= self.threshold.at(clock.count),
            rectifier: C::of(squared.sqrt()),
            eps: C::of(eps),
            eps_root: C::of(eps_root),
        }
    }

    #[inline(always)]
    fn apply<C: Real>(k: RadamScalars<C>, [mu, nu]: &mut [C; 2], u: C, _: C) -> C {
        *mu = k.mean1.with(*mu, u);
        *nu = k.mean2.with(*nu, u * u);
        // An infinite update times zero would be NaN.
        let own = if k.nesterov { k.update_weight * u } else { C::zero() };
        let ahead = k.mean_weight * *mu + own;
        let rectified = k.rectifier * ahead / ((k.unbias2 * *nu + k.eps_root).sqrt() + k.eps);
        if k.rectify { rectified } else { ahead }
    }
}
