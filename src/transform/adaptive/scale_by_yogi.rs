use crate::part::prelude::*;
use crate::transform::moment::Mean;

/// Divides a running mean of the updates by the root of a second moment with additive updates.
///
/// # Arithmetic
///
/// Per element, at step `t`, counted from 1:
///
/// ```text
/// mu ← b1·mu + (1 − b1)·u                       starts at initial_accumulator_value
/// nu ← nu − (1 − b2)·sign(nu − u²)·u²           starts at initial_accumulator_value
/// u ← mu / (1 − b1ᵗ) / (√(nu / (1 − b2ᵗ) + eps_root) + eps)
/// ```
///
/// # Cost
///
/// Two floats of state per parameter. Fuses; reads no parameters.
///
/// # Errors
///
/// `init` fails if `b1` or `b2` is not in `[0, 1)`, or `eps`, `eps_root` or `initial_accumulator_value` is
/// negative or not finite.
///
/// # Example
///
/// The second moment goes from 0 to half of 4², and by the second update down by half of 2² to 6:
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::scale_by_yogi;
///
/// let optimizer = scale_by_yogi().b2(0.5).eps(0.0).initial_accumulator_value(0.0);
/// let params = 0.0_f64;
/// let mut state = optimizer.init(&params)?;
/// optimizer.update(&4.0_f64, &mut state, &params)?;
/// assert_eq!(state.moment("nu").unwrap().get::<f64>(0).unwrap(), [8.0]);
/// optimizer.update(&2.0_f64, &mut state, &params)?;
/// assert_eq!(state.moment("nu").unwrap().get::<f64>(0).unwrap(), [6.0]);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Zaheer and others, [Adaptive methods for nonconvex
/// optimization](https://papers.nips.cc/paper/8186-adaptive-methods-for-nonconvex-optimization), 2018, algorithm 2,
/// which has no bias corrections. Optax,
/// [`scale_by_yogi`](https://optax.readthedocs.io/en/latest/api/transformations.html). Differs: moments of 16-bit
/// leaves are `f32`. PyTorch has none.
pub fn scale_by_yogi() -> ScaleByYogi {
    ScaleByYogi::with()
}

part! {
    /// See [`scale_by_yogi`].
    pub ScaleByYogi as "scale_by_yogi": OneElement;
    hyperparams {
        /// Decay of the first moment.
        b1: DECAY = 0.9;
        /// 1 minus the fraction of each square by which the second moment moves.
        b2: DECAY = 0.999;
        /// Added to the root.
        eps: NOT_NEGATIVE = 1e-3;
        /// Added under the root.
        eps_root: NOT_NEGATIVE = 0.0;
        /// Initial value of both moments.
        initial_accumulator_value: NOT_NEGATIVE = 1e-6;
    }
    effect Self::effect_of;
}

impl ScaleByYogi {
    fn effect_of(&self) -> Effect {
        Effect::SCALE_INVARIANT.with_momentum(&self.b1)
    }
}

/// Scalars of [`ScaleByYogi`], computed once per step.
#[derive(Clone, Copy, Debug)]
pub struct YogiScalars<C> {
    mean1: Mean<C>,
    step2: C,
    unbias1: C,
    unbias2: C,
    eps: C,
    eps_root: C,
}

impl Rule for ScaleByYogi {
    const SLOTS: &'static [Slot] = &[Slot::signed("mu"), Slot::not_negative("nu")];
    type Slots<C: Real> = [C; 2];
    type Scalars<C: Real> = YogiScalars<C>;

    fn slot(&self, slot: Slot) -> Slot {
        slot.starts_at(self.initial_accumulator_value.at(0))
    }

    fn scalars<C: Real>(&self, clock: Clock) -> YogiScalars<C> {
        let [b1, b2, eps, eps_root] = Hyperparam::all_at([&self.b1, &self.b2, &self.eps, &self.eps_root], clock.count);
        YogiScalars {
            mean1: Mean::of(b1),
            step2: C::of(1.0 - b2),
            unbias1: C::of(1.0 / clock.bias_correction(b1)),
            unbias2: C::of(1.0 / clock.bias_correction(b2)),
            eps: C::of(eps),
            eps_root: C::of(eps_root),
        }
    }

    #[inline(always)]
    fn apply<C: Real>(k: YogiScalars<C>, [mu, nu]: &mut [C; 2], u: C, _: C) -> C {
        *mu = k.mean1.with(*mu, u);
        let square = u * u;
        let above = *nu - square;
        // Sign times square, as a difference of two: zero for equals, NaN for NaN.
        let down = if above <= C::zero() { C::zero() } else { square };
        let up = if above >= C::zero() { C::zero() } else { square };
        *nu -= k.step2 * (down - up);
        k.unbias1 * *mu / ((k.unbias2 * *nu + k.eps_root).sqrt() + k.eps)
    }
}
