use crate::part::prelude::*;
use crate::transform::moment::Mean;

/// Divides a running mean of the updates by a decaying maximum of their absolute values.
///
/// # Arithmetic
///
/// Per element, at step `t`, counted from 1:
///
/// ```text
/// mu ← b1·mu + (1 − b1)·u              starts at 0
/// nu ← max(b2·nu, |u| + eps)           starts at 0
/// u ← mu / (1 − b1ᵗ) / nu
/// ```
///
/// # Cost
///
/// Two floats of state per parameter. Fuses; reads no parameters.
///
/// # Errors
///
/// `init` fails if `b1` or `b2` is not in `[0, 1)`, or `eps` is negative or not finite.
///
/// # Example
///
/// The decaying maximum is 8, and half of that at the second step:
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::scale_by_adamax;
///
/// let optimizer = scale_by_adamax().b1(0.0).b2(0.5).eps(0.0);
/// let params = 0.0_f64;
/// let mut state = optimizer.init(&params)?;
/// for (gradient, expected) in [(8.0, 1.0), (-1.0, -0.25)] {
///     let updates = optimizer.update(&gradient, &mut state, &params)?;
///     assert_eq!(updates.to_vec::<f64>("").unwrap(), [expected]);
/// }
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Kingma and Ba, [Adam: a method for stochastic optimization](https://arxiv.org/abs/1412.6980), 2014, algorithm 2,
/// which has no `eps`. Optax, [`scale_by_adamax`](https://optax.readthedocs.io/en/latest/api/transformations.html).
/// Differs: moments of 16-bit leaves are `f32`. PyTorch's `Adamax`: the same.
pub fn scale_by_adamax() -> ScaleByAdamax {
    ScaleByAdamax::with()
}

part! {
    /// See [`scale_by_adamax`].
    pub ScaleByAdamax as "scale_by_adamax": OneElement;
    hyperparams {
        /// Decay of the mean.
        b1: DECAY = 0.9;
        /// Decay of the infinity norm.
        b2: DECAY = 0.999;
        /// Added to every magnitude.
        eps: NOT_NEGATIVE = 1e-8;
    }
    effect Self::effect_of;
}

impl ScaleByAdamax {
    fn effect_of(&self) -> Effect {
        Effect::SCALE_INVARIANT.with_momentum(&self.b1)
    }
}

/// Scalars of [`ScaleByAdamax`], computed once per step.
#[derive(Clone, Copy, Debug)]
pub struct AdamaxScalars<C> {
    mean: Mean<C>,
    unbias: C,
    keep: C,
    eps: C,
}

impl Rule for ScaleByAdamax {
    const SLOTS: &'static [Slot] = &[Slot::signed("mu"), Slot::not_negative("nu")];
    type Slots<C: Real> = [C; 2];
    type Scalars<C: Real> = AdamaxScalars<C>;

    fn scalars<C: Real>(&self, clock: Clock) -> AdamaxScalars<C> {
        let [b1, b2, eps] = Hyperparam::all_at([&self.b1, &self.b2, &self.eps], clock.count);
        AdamaxScalars {
            mean: Mean::of(b1),
            unbias: C::of(1.0 / clock.bias_correction(b1)),
            keep: C::of(b2),
            eps: C::of(eps),
        }
    }

    #[inline(always)]
    fn apply<C: Real>(k: AdamaxScalars<C>, [mu, nu]: &mut [C; 2], u: C, _: C) -> C {
        *mu = k.mean.with(*mu, u);
        let (faded, size) = (k.keep * *nu, u.abs() + k.eps);
        // `max` would drop NaN.
        *nu = if faded >= size { faded } else { size };
        k.unbias * *mu / *nu
    }
}
