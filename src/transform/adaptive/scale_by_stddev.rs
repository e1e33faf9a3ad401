use crate::part::prelude::*;
use crate::transform::moment::{Mean, unbias};

/// Divides updates by their running standard deviation.
///
/// # Arithmetic
///
/// Per element, at step `t`, counted from 1:
///
/// ```text
/// mu ← decay·mu + (1 − decay)·u             starts at 0
/// nu ← decay·nu + (1 − decay)·u²            starts at initial_scale
/// m, n = mu, nu                             or, with bias_correction: mu / (1 − decayᵗ), nu / (1 − decayᵗ)
/// u ← u / √(max(n − m², 0) + eps)           or, without eps_in_sqrt: u / (√max(n − m², 0) + eps)
/// ```
///
/// The lower bound of 0 is needed because rounding can make the variance negative. With `bias_correction` and an
/// `initial_scale` of 0 the variance is zero at the first step, and only `eps` keeps the update finite.
///
/// # Cost
///
/// Two floats of state per parameter. Fuses; reads no parameters.
///
/// # Errors
///
/// `init` fails if `decay` is not in `[0, 1)`, or `eps` or `initial_scale` is negative or not finite.
///
/// # Example
///
/// The mean is `0.5·4 = 2`, the mean of squares `0.5·4² = 8`, so the variance is `8 − 2² = 4`:
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::scale_by_stddev;
///
/// let optimizer = scale_by_stddev().decay(0.5).eps(0.0);
/// let params = 0.0_f64;
/// let updates = optimizer.update(&4.0_f64, &mut optimizer.init(&params)?, &params)?;
/// assert_eq!(updates.to_vec::<f64>("").unwrap(), [2.0]);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Graves, [Generating sequences with recurrent neural networks](https://arxiv.org/abs/1308.0850), 2013, equations 38
/// to 45. Optax, [`scale_by_stddev`](https://optax.readthedocs.io/en/latest/api/transformations.html). Differs: where
/// rounding makes the variance negative Optax takes its root, which is NaN; means of 16-bit leaves are `f32`. PyTorch's
/// `RMSprop(centered=True)` has `eps` outside the root.
pub fn scale_by_stddev() -> ScaleByStddev {
    ScaleByStddev::with()
}

part! {
    /// See [`scale_by_stddev`].
    pub ScaleByStddev as "scale_by_stddev": OneElement, SCALE_INVARIANT;
    hyperparams {
        /// Decay of both means.
        decay: DECAY = 0.9;
        /// Added under the root or to it.
        eps: NOT_NEGATIVE = 1e-8;
        /// Initial value of the mean of squares.
        initial_scale: NOT_NEGATIVE = 0.0;
    }
    options {
        /// If true, `eps` is added under the root, else to it.
        eps_in_sqrt: bool = true;
        /// If true, corrects the bias of the means from their start at zero.
        bias_correction: bool = false;
    }
}

/// Scalars of [`ScaleByStddev`], computed once per step.
#[derive(Clone, Copy, Debug)]
pub struct StddevScalars<C> {
    mean: Mean<C>,
    unbias: C,
    eps_root: C,
    eps: C,
}

impl Rule for ScaleByStddev {
    const SLOTS: &'static [Slot] = &[Slot::signed("mu"), Slot::not_negative("nu")];
    type Slots<C: Real> = [C; 2];
    type Scalars<C: Real> = StddevScalars<C>;

    fn slot(&self, slot: Slot) -> Slot {
        if slot.name() == "nu" { slot.starts_at(self.initial_scale.at(0)) } else { slot }
    }

    fn scalars<C: Real>(&self, clock: Clock) -> StddevScalars<C> {
        let (decay, eps) = (self.decay.at(clock.count), self.eps.at(clock.count));
        let (eps_root, eps) = if self.eps_in_sqrt { (eps, 0.0) } else { (0.0, eps) };
        StddevScalars {
            mean: Mean::of(decay),
            unbias: C::of(unbias(clock, decay, self.bias_correction)),
            eps_root: C::of(eps_root),
            eps: C::of(eps),
        }
    }

    #[inline(always)]
    fn apply<C: Real>(k: StddevScalars<C>, [mu, nu]: &mut [C; 2], u: C, _: C) -> C {
        *mu = k.mean.with(*mu, u);
        *nu = k.mean.with(*nu, u * u);
        let mean = k.unbias * *mu;
        let variance = k.unbias * *nu - mean * mean;
        // `max` would make NaN zero.
        let variance = if variance < C::zero() { C::zero() } else { variance };
        u / ((variance + k.eps_root).sqrt() + k.eps)
    }
}
