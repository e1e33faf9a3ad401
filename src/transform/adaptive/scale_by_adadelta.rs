use crate::part::prelude::*;
use crate::transform::moment::Mean;

/// Multiplies updates by the ratio of the running root mean squares of earlier outputs and of inputs.
///
/// # Arithmetic
///
/// ```text
/// e_g ← rho·e_g + (1 − rho)·u²                  starts at 0
/// u ← u · √(e_x + eps) / √(e_g + eps)
/// e_x ← rho·e_x + (1 − rho)·u²                  starts at 0; of the update just made
/// ```
///
/// # Cost
///
/// Two floats of state per parameter. Fuses; reads no parameters.
///
/// # Errors
///
/// `init` fails if `rho` is not in `[0, 1)`, or `eps` is negative or not finite. With an `eps` of 0 nothing ever moves.
///
/// # Example
///
/// With `e_g` at half of 4² and `e_x` at 0 the first update is 4·√1 / √9:
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::scale_by_adadelta;
///
/// let optimizer = scale_by_adadelta().rho(0.5).eps(1.0);
/// let params = 0.0_f64;
/// let updates = optimizer.update(&4.0_f64, &mut optimizer.init(&params)?, &params)?;
/// approx::assert_relative_eq!(updates.to_vec::<f64>("").unwrap()[0], 4.0 / 3.0, max_relative = 1e-12);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Zeiler, [ADADELTA: an adaptive learning rate method](https://arxiv.org/abs/1212.5701), 2012, algorithm 1. Optax,
/// [`scale_by_adadelta`](https://optax.readthedocs.io/en/latest/api/transformations.html). Differs: means of 16-bit
/// leaves are `f32`. PyTorch's `Adadelta`: the same.
pub fn scale_by_adadelta() -> ScaleByAdadelta {
    ScaleByAdadelta::with()
}

part! {
    /// See [`scale_by_adadelta`].
    pub ScaleByAdadelta as "scale_by_adadelta": OneElement, SCALE_INVARIANT;
    hyperparams {
        /// Decay of both means.
        rho: DECAY = 0.9;
        /// Added under both roots.
        eps: NOT_NEGATIVE = 1e-6;
    }
}

/// Scalars of [`ScaleByAdadelta`], computed once per step.
#[derive(Clone, Copy, Debug)]
pub struct AdadeltaScalars<C> {
    mean: Mean<C>,
    eps: C,
}

impl Rule for ScaleByAdadelta {
    const SLOTS: &'static [Slot] = &[Slot::not_negative("e_g"), Slot::not_negative("e_x")];
    type Slots<C: Real> = [C; 2];
    type Scalars<C: Real> = AdadeltaScalars<C>;

    fn scalars<C: Real>(&self, clock: Clock) -> AdadeltaScalars<C> {
        AdadeltaScalars { mean: Mean::of(self.rho.at(clock.count)), eps: C::of(self.eps.at(clock.count)) }
    }

    #[inline(always)]
    fn apply<C: Real>(k: AdadeltaScalars<C>, [of_gradients, of_updates]: &mut [C; 2], u: C, _: C) -> C {
        *of_gradients = k.mean.with(*of_gradients, u * u);
        let u = (*of_updates + k.eps).sqrt() / (*of_gradients + k.eps).sqrt() * u;
        *of_updates = k.mean.with(*of_updates, u * u);
        u
    }
}
