use crate::part::prelude::*;
use crate::transform::moment::Mean;

/// Divides a mix of a fast and a slow running mean of the updates by the root of a running mean of their squares.
///
/// # Arithmetic
///
/// Per element, at step `t`, counted from 1:
///
/// ```text
/// m1 ← b1·m1 + (1 − b1)·u              fast, starts at 0
/// m2 ← b3·m2 + (1 − b3)·u              slow, starts at 0
/// nu ← b2·nu + (1 − b2)·u²             starts at 0
/// u ← (m1 / (1 − b1ᵗ) + alpha·m2) / (√(nu / (1 − b2ᵗ) + eps_root) + eps)
/// ```
///
/// The slow mean keeps its start at zero. The paper lets `alpha` and `b3` grow over the first steps: give schedules.
///
/// # Cost
///
/// Three floats of state per parameter. Fuses; reads no parameters.
///
/// # Errors
///
/// `init` fails if `b1` or `b2` is not in `[0, 1)`, `b3` is not in `[0, 1]`, `eps` or `eps_root` is negative or not
/// finite, or `alpha` is not finite.
///
/// # Example
///
/// The bias-corrected fast mean is the gradient; the slow one is half of it, and counts twice:
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::scale_by_ademamix;
///
/// let optimizer = scale_by_ademamix().b3(0.5).alpha(2.0).eps(0.0);
/// let params = 0.0_f64;
/// let updates = optimizer.update(&8.0_f64, &mut optimizer.init(&params)?, &params)?;
/// approx::assert_relative_eq!(updates.to_vec::<f64>("").unwrap()[0], 2.0, max_relative = 1e-12);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Pagliardini, Ablin and Grangier, [The AdEMAMix optimizer: better, faster, older](https://arxiv.org/abs/2409.03137),
/// 2024, algorithm 1. Optax, [`scale_by_ademamix`](https://optax.readthedocs.io/en/latest/api/contrib.html). Differs:
/// `mu_dtype` is the dtype of all three arrays at every step, where in Optax it is that of their zeros before the
/// first, and promotion undoes it; state of 16-bit leaves is `f32` unless `mu_dtype` is set. PyTorch has none.
pub fn scale_by_ademamix() -> ScaleByAdemamix {
    ScaleByAdemamix::with()
}

part! {
    /// See [`scale_by_ademamix`].
    pub ScaleByAdemamix as "scale_by_ademamix": OneElement, SCALE_INVARIANT;
    hyperparams {
        /// Decay of the fast mean.
        b1: DECAY = 0.9;
        /// Decay of the second moment.
        b2: DECAY = 0.999;
        /// Decay of the slow mean.
        b3: UNIT_INTERVAL = 0.9999;
        /// Weight of the slow mean.
        alpha: FINITE = 6.0;
        /// Added to the root.
        eps: NOT_NEGATIVE = 1e-8;
        /// Added under the root.
        eps_root: NOT_NEGATIVE = 0.0;
    }
    options {
        /// Dtype of the state; by default the compute type.
        mu_dtype: Option<DType> = None;
    }
}

/// Scalars of [`ScaleByAdemamix`], computed once per step.
#[derive(Clone, Copy, Debug)]
pub struct AdemamixScalars<C> {
    fast: Mean<C>,
    slow: Mean<C>,
    squares: Mean<C>,
    unbias1: C,
    unbias2: C,
    alpha: C,
    eps: C,
    eps_root: C,
}

impl Rule for ScaleByAdemamix {
    const SLOTS: &'static [Slot] = &[Slot::signed("m1"), Slot::signed("m2"), Slot::not_negative("nu")];
    type Slots<C: Real> = [C; 3];
    type Scalars<C: Real> = AdemamixScalars<C>;

    fn slot(&self, slot: Slot) -> Slot {
        slot.of_dtype(self.mu_dtype)
    }

    fn scalars<C: Real>(&self, clock: Clock) -> AdemamixScalars<C> {
        let [b1, b2, b3] = Hyperparam::all_at([&self.b1, &self.b2, &self.b3], clock.count);
        AdemamixScalars {
            fast: Mean::of(b1),
            slow: Mean::of(b3),
            squares: Mean::of(b2),
            unbias1: C::of(1.0 / clock.bias_correction(b1)),
            unbias2: C::of(1.0 / clock.bias_correction(b2)),
            alpha: C::of(self.alpha.at(clock.count)),
            eps: C::of(self.eps.at(clock.count)),
            eps_root: C::of(self.eps_root.at(clock.count)),
        }
    }

    #[inline(always)]
    fn apply<C: Real>(k: AdemamixScalars<C>, [m1, m2, nu]: &mut [C; 3], u: C, _: C) -> C {
        *m1 = k.fast.with(*m1, u);
        *m2 = k.slow.with(*m2, u);
        *nu = k.squares.with(*nu, u * u);
        (k.unbias1 * *m1 + k.alpha * *m2) / ((k.unbias2 * *nu + k.eps_root).sqrt() + k.eps)
    }
}
