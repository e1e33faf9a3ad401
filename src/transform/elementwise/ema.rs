use crate::part::prelude::*;

/// Replaces updates by their exponential moving average (EMA).
///
/// # Arithmetic
///
/// At step `t`, counted from 1:
///
/// ```text
/// ema ← decay·ema + (1 − decay)·u         starts at 0
/// u ← ema / (1 − decayᵗ)                  without debias: ema
/// ```
///
/// A sum instead of a mean is [`trace`](crate::transform::trace()).
///
/// # Cost
///
/// One float of state per parameter. Fuses; reads no parameters.
///
/// # Errors
///
/// `init` fails if `decay` is not in `[0, 1)`.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::ema;
///
/// let optimizer = ema(0.5).debias(false);
/// let params = 0.0_f64;
/// let mut state = optimizer.init(&params)?;
/// for expected in [0.5, 0.75, 0.875] {
///     let updates = optimizer.update(&1.0_f64, &mut state, &params)?;
///     assert_eq!(updates.to_vec::<f64>("").unwrap(), [expected]);
/// }
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Kingma and Ba, [Adam: a method for stochastic optimization](https://arxiv.org/abs/1412.6980), 2014, section 3.
/// Optax, [`ema`](https://optax.readthedocs.io/en/latest/api/transformations.html). Differs: the mean of a 16-bit leaf
/// is `f32` unless `accumulator_dtype` is set.
pub fn ema(decay: impl IntoHyperparam) -> Ema {
    Ema::with(decay)
}

part! {
    /// See [`ema`](ema()).
    pub Ema as "ema": OneElement;
    required {
        /// Fraction of the mean kept from one step to the next.
        decay: DECAY;
    }
    options {
        /// If true, corrects the bias from the start at zero.
        debias: bool = true;
        /// Dtype of the mean; by default the compute type.
        accumulator_dtype: Option<DType> = None;
    }
    effect Self::effect_of;
}

impl Ema {
    fn effect_of(&self) -> Effect {
        Effect::SAME_DIRECTION.with_momentum(&self.decay)
    }
}

/// Scalars of [`Ema`], computed once per step.
#[derive(Clone, Copy, Debug)]
pub struct EmaScalars<C> {
    keep: C,
    take: C,
    unbias: C,
}

impl Rule for Ema {
    const SLOTS: &'static [Slot] = &[Slot::signed("ema")];
    type Slots<C: Real> = [C; 1];
    type Scalars<C: Real> = EmaScalars<C>;

    fn scalars<C: Real>(&self, clock: Clock) -> EmaScalars<C> {
        let decay = self.decay.at(clock.count);
        let unbias = if self.debias { 1.0 / clock.bias_correction(decay) } else { 1.0 };
        EmaScalars { keep: C::of(decay), take: C::of(1.0 - decay), unbias: C::of(unbias) }
    }

    #[inline(always)]
    fn apply<C: Real>(k: EmaScalars<C>, [ema]: &mut [C; 1], u: C, _: C) -> C {
        *ema = k.keep * *ema + k.take * u;
        k.unbias * *ema
    }
}
