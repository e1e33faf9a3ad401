use crate::part::prelude::*;

/// Applies momentum: replaces updates by their decaying sum.
///
/// # Arithmetic
///
/// ```text
/// trace ← u + decay·trace                 starts at 0
/// u ← trace                               with nesterov: u + decay·trace
/// ```
///
/// A mean instead of a sum is [`ema`](crate::transform::ema).
///
/// # Cost
///
/// One float of state per parameter. Fuses; reads no parameters.
///
/// # Errors
///
/// `init` fails if `decay` is not finite.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::trace;
///
/// let optimizer = trace(0.5);
/// let params = 0.0_f64;
/// let mut state = optimizer.init(&params)?;
/// for expected in [1.0, 1.5, 1.75] {
///     let updates = optimizer.update(&1.0_f64, &mut state, &params)?;
///     assert_eq!(updates.to_vec::<f64>("").unwrap(), [expected]);
/// }
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Polyak, Some methods of speeding up the convergence of iteration methods, 1964. Sutskever, Martens, Dahl and Hinton,
/// [On the importance of initialization and momentum in deep
/// learning](https://proceedings.mlr.press/v28/sutskever13.html), 2013. Optax,
/// [`trace`](https://optax.readthedocs.io/en/latest/api/transformations.html). Differs: the trace of a 16-bit leaf is
/// `f32` unless `accumulator_dtype` is set.
pub fn trace(decay: impl IntoHyperparam) -> Trace {
    Trace::with(decay)
}

part! {
    /// See [`trace`](trace()).
    pub Trace as "trace": OneElement;
    required {
        /// Fraction of the sum kept from one step to the next; from 1 on the sum grows without bound.
        decay: FINITE;
    }
    options {
        /// If true, uses Nesterov momentum.
        nesterov: bool = false;
        /// Dtype of the sum; by default the compute type.
        accumulator_dtype: Option<DType> = None;
    }
    effect Self::effect_of;
}

impl Trace {
    fn effect_of(&self) -> Effect {
        Effect::SAME_DIRECTION.with_momentum(&self.decay)
    }
}

impl Rule for Trace {
    const SLOTS: &'static [Slot] = &[Slot::signed("trace")];
    type Slots<C: Real> = [C; 1];
    type Scalars<C: Real> = (C, bool);

    fn scalars<C: Real>(&self, clock: Clock) -> (C, bool) {
        (C::of(self.decay.at(clock.count)), self.nesterov)
    }

    #[inline(always)]
    fn apply<C: Real>((decay, nesterov): (C, bool), [trace]: &mut [C; 1], u: C, _: C) -> C {
        *trace = u + decay * *trace;
        if nesterov { u + decay * *trace } else { *trace }
    }
}
