use crate::part::prelude::*;
use crate::transform::moment::Mean;

/// Divides a decaying sum of the updates, with extra weight of the current one, by their running root mean square.
///
/// Needs the feature `contrib`.
///
/// # Arithmetic
///
/// Per element, at step `t`, counted from 1:
///
/// ```text
/// m ← b1·m + u                         a sum, not a mean; starts at 0
/// n ← b2·n + (1 − b2)·u²               starts at 0
/// u ← (m + alpha·u) / (√(n / (1 − b2ᵗ) + eps_root) + eps)
/// ```
///
/// The sum grows to `1 / (1 − b1)` times the gradient, so learning rates are smaller than Adam's by that factor.
///
/// # Cost
///
/// Two floats of state per parameter. Fuses; reads no parameters.
///
/// # Errors
///
/// `init` fails if `b2` is not in `[0, 1)`, `b1` or `alpha` is not finite, or `eps` or `eps_root` is negative or not
/// finite.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::scale_by_simplified_ademamix;
///
/// let optimizer = scale_by_simplified_ademamix().b1(0.5).b2(0.0).alpha(2.0).eps(0.0);
/// let params = 0.0_f64;
/// let mut state = optimizer.init(&params)?;
/// // (4 + 2·4) / 4, then (2 + 4 + 2·4) / 4.
/// for expected in [3.0, 3.5] {
///     let updates = optimizer.update(&4.0_f64, &mut state, &params)?;
///     assert_eq!(updates.to_vec::<f64>("").unwrap(), [expected]);
/// }
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Morwani and others, [Connections between schedule-free optimizers, AdEMAMix, and accelerated SGD
/// variants](https://arxiv.org/abs/2502.02431), 2025. Optax,
/// [`scale_by_simplified_ademamix`](https://optax.readthedocs.io/en/latest/api/contrib.html). Differs: Optax writes the
/// mean of squares as `u² + b2·(n − u²)`, which is NaN where `u²` overflows; state of 16-bit leaves is `f32`. PyTorch
/// has none.
pub fn scale_by_simplified_ademamix() -> ScaleBySimplifiedAdemamix {
    ScaleBySimplifiedAdemamix::with()
}

part! {
    /// See [`scale_by_simplified_ademamix`].
    pub ScaleBySimplifiedAdemamix as "scale_by_simplified_ademamix": OneElement, SCALE_INVARIANT;
    hyperparams {
        /// Fraction of the sum kept from one step to the next; from 1 on the sum grows without bound.
        b1: FINITE = 0.99;
        /// Decay of the mean of squares.
        b2: DECAY = 0.95;
        /// Extra weight of the current update.
        alpha: FINITE = 0.0;
        /// Added to the root.
        eps: NOT_NEGATIVE = 1e-8;
        /// Added under the root.
        eps_root: NOT_NEGATIVE = 0.0;
    }
}

/// Scalars of [`ScaleBySimplifiedAdemamix`], computed once per step.
#[derive(Clone, Copy, Debug)]
pub struct SimplifiedAdemamixScalars<C> {
    keep: C,
    squares: Mean<C>,
    unbias: C,
    alpha: C,
    eps: C,
    eps_root: C,
}

impl Rule for ScaleBySimplifiedAdemamix {
    const SLOTS: &'static [Slot] = &[Slot::signed("m"), Slot::not_negative("n")];
    type Slots<C: Real> = [C; 2];
    type Scalars<C: Real> = SimplifiedAdemamixScalars<C>;

    fn scalars<C: Real>(&self, clock: Clock) -> SimplifiedAdemamixScalars<C> {
        let b2 = self.b2.at(clock.count);
        SimplifiedAdemamixScalars {
            keep: C::of(self.b1.at(clock.count)),
            squares: Mean::of(b2),
            unbias: C::of(1.0 / clock.bias_correction(b2)),
            alpha: C::of(self.alpha.at(clock.count)),
            eps: C::of(self.eps.at(clock.count)),
            eps_root: C::of(self.eps_root.at(clock.count)),
        }
    }

    #[inline(always)]
    fn apply<C: Real>(k: SimplifiedAdemamixScalars<C>, [m, n]: &mut [C; 2], u: C, _: C) -> C {
        *m = k.keep * *m + u;
        *n = k.squares.with(*n, u * u);
        (*m + k.alpha * u) / ((k.unbias * *n + k.eps_root).sqrt() + k.eps)
    }
}
