use crate::part::prelude::*;

/// Adds to updates a multiple of their change since the last step, to offset the lag of a running mean.
///
/// # Arithmetic
///
/// ```text
/// c = u + gamma·b1/(1 − b1)·(u − last)    in the first step: u
/// last ← u
/// u ← c
/// ```
///
/// # Cost
///
/// One float of state per parameter. Fuses; reads no parameters.
///
/// # Errors
///
/// `init` fails if `gamma` is not finite or `b1` not in `[0, 1)`.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::reduce_variance;
///
/// let optimizer = reduce_variance().gamma(0.5).b1(0.5);
/// let mut params = vec![0.0_f64];
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &vec![1.0_f64], &mut state)?;
/// assert_eq!(params, [1.0]);
/// optimizer.step(&mut params, &vec![2.0_f64], &mut state)?;
/// assert_eq!(params, [1.0 + 2.5]);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Yuan, Liu, Wu, Zhou and Gu, [MARS: unleashing the power of variance reduction for training large
/// models](https://arxiv.org/abs/2411.10438), 2024, equation 10, in the approximate form: the previous gradient is that
/// of the previous batch, not recomputed on the current one. Optax has none. Differs: in the first step nothing is
/// added, as in the paper, where the authors' code takes the gradient before it to be zero.
pub fn reduce_variance() -> ReduceVariance {
    ReduceVariance::with()
}

part! {
    /// See [`reduce_variance`].
    pub ReduceVariance as "reduce_variance": OneElement, SAME_DIRECTION;
    hyperparams {
        /// Fraction of the lag that is offset; 1 offsets all of it.
        gamma: FINITE = 0.025;
        /// Decay of the running mean that follows.
        b1: DECAY = 0.95;
    }
}

impl Rule for ReduceVariance {
    const SLOTS: &'static [Slot] = &[Slot::signed("last")];
    type Slots<C: Real> = [C; 1];
    type Scalars<C: Real> = C;

    fn scalars<C: Real>(&self, clock: Clock) -> C {
        let [gamma, b1] = Hyperparam::all_at([&self.gamma, &self.b1], clock.count);
        C::of(if clock.updates == 0 { 0.0 } else { gamma * b1 / (1.0 - b1) })
    }

    #[inline(always)]
    fn apply<C: Real>(share: C, [last]: &mut [C; 1], u: C, _: C) -> C {
        let corrected = u + share * (u - *last);
        *last = u;
        corrected
    }
}
