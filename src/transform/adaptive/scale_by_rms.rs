use crate::part::prelude::*;
use crate::transform::moment::{Mean, unbias};

/// Divides updates by the root of a running mean of their squares.
///
/// # Arithmetic
///
/// Per element, at step `t`, counted from 1:
///
/// ```text
/// nu ← decay·nu + (1 − decay)·u²    starts at initial_scale
/// n = nu                            or, with bias_correction: nu / (1 − decayᵗ)
/// u ← u / √(n + eps)                or, without eps_in_sqrt: u / (√n + eps)
/// ```
///
/// # Cost
///
/// One float of state per parameter. Fuses; reads no parameters.
///
/// # Errors
///
/// `init` fails if `decay` is not in `[0, 1)`, or `eps` or `initial_scale` is negative or not finite.
///
/// # Example
///
/// The mean of squares is `0.25·4² = 4` after the first update, and `0.75·4 + 0.25·2² = 4` after the second:
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::scale_by_rms;
///
/// let optimizer = scale_by_rms().decay(0.75).eps(0.0);
/// let params = 0.0_f64;
/// let mut state = optimizer.init(&params)?;
/// assert_eq!(optimizer.update(&4.0_f64, &mut state, &params)?.to_vec::<f64>("").unwrap(), [2.0]);
/// assert_eq!(optimizer.update(&2.0_f64, &mut state, &params)?.to_vec::<f64>("").unwrap(), [1.0]);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Tieleman and Hinton, [Lecture 6.5 of Neural networks for machine
/// learning](https://www.cs.toronto.edu/~tijmen/csc321/slides/lecture_slides_lec6.pdf), 2012. Optax,
/// [`scale_by_rms`](https://optax.readthedocs.io/en/latest/api/transformations.html). Differs: the mean of a 16-bit
/// leaf is `f32`. PyTorch's `RMSprop` has `eps` outside the root and a decay (`alpha`) of 0.99.
pub fn scale_by_rms() -> ScaleByRms {
    ScaleByRms::with()
}

part! {
    /// See [`scale_by_rms`].
    pub ScaleByRms as "scale_by_rms": OneElement, SCALE_INVARIANT;
    hyperparams {
        /// Decay of the mean of squares.
        decay: DECAY = 0.9;
        /// Added under the root or to it.
        eps: NOT_NEGATIVE = 1e-8;
        /// Initial value of the mean of squares.
        initial_scale: NOT_NEGATIVE = 0.0;
    }
    options {
        /// If true, `eps` is added under the root, else to it.
        eps_in_sqrt: bool = true;
        /// If true, corrects the bias of the mean from its start at zero.
        bias_correction: bool = false;
    }
}

/// Scalars of [`ScaleByRms`], computed once per step.
#[derive(Clone, Copy, Debug)]
pub struct RmsScalars<C> {
    mean: Mean<C>,
    unbias: C,
    eps_root: C,
    eps: C,
}

impl Rule for ScaleByRms {
    const SLOTS: &'static [Slot] = &[Slot::not_negative("nu")];
    type Slots<C: Real> = [C; 1];
    type Scalars<C: Real> = RmsScalars<C>;

    fn slot(&self, slot: Slot) -> Slot {
        slot.starts_at(self.initial_scale.at(0))
    }

    fn scalars<C: Real>(&self, clock: Clock) -> RmsScalars<C> {
        let (decay, eps) = (self.decay.at(clock.count), self.eps.at(clock.count));
        let (eps_root, eps) = if self.eps_in_sqrt { (eps, 0.0) } else { (0.0, eps) };
        RmsScalars {
            mean: Mean::of(decay),
            unbias: C::of(unbias(clock, decay, self.bias_correction)),
            eps_root: C::of(eps_root),
            eps: C::of(eps),
        }
    }

    #[inline(always)]
    fn apply<C: Real>(k: RmsScalars<C>, [nu]: &mut [C; 1], u: C, _: C) -> C {
        *nu = k.mean.with(*nu, u * u);
        u / ((k.unbias * *nu + k.eps_root).sqrt() + k.eps)
    }
}
