use crate::part::prelude::*;
use crate::transform::moment::Mean;

/// Divides updates by the root of the running variance of earlier updates, excluding the current one.
///
/// Needs the feature `contrib`.
///
/// # Arithmetic
///
/// Per element, at step `t`, counted from 1:
///
/// ```text
/// before = nu / (1 − b2ᵗ⁻¹)                         1 while there is nothing in nu but eps_root
/// nu ← b2·nu + (1 − b2)·(u − mu)² + eps_root        starts at 0; with the mean of the step before
/// mu ← b1·mu + (1 − b1)·u                           starts at 0
/// u ← u / (√before + eps)
/// ```
///
/// An element whose gradients have all been zero, or negligible compared with `eps_root`, is treated as in the first
/// step: its first gradient divided by the root of `eps_root` alone would be huge.
///
/// # Cost
///
/// Two floats of state per parameter. Fuses; reads no parameters.
///
/// # Errors
///
/// `init` fails if `b1` or `b2` is not in `[0, 1)`, or `eps` or `eps_root` is negative or not finite.
///
/// # Example
///
/// The first update is the gradient; the second is divided by the root of 4², the first's difference from zero.
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::scale_by_acprop;
///
/// let optimizer = scale_by_acprop().b2(0.0).eps(0.0).eps_root(0.0);
/// let params = 0.0_f64;
/// let mut state = optimizer.init(&params)?;
/// for (gradient, expected) in [(4.0, 4.0), (2.0, 0.5)] {
///     let updates = optimizer.update(&gradient, &mut state, &params)?;
///     assert_eq!(updates.to_vec::<f64>("").unwrap(), [expected]);
/// }
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Zhuang and others, [Momentum centering and asynchronous update for adaptive gradient
/// methods](https://arxiv.org/abs/2110.05454), 2021, algorithm 2. Optax,
/// [`scale_by_acprop`](https://optax.readthedocs.io/en/latest/api/contrib.html). Differs: while an element has had no
/// gradient, Optax divides it by `√(eps_root / (1 − b2))`, by default 3e-7; moments of 16-bit leaves are `f32`. PyTorch
/// has none.
pub fn scale_by_acprop() -> ScaleByAcprop {
    ScaleByAcprop::with()
}

part! {
    /// See [`scale_by_acprop`].
    pub ScaleByAcprop as "scale_by_acprop": OneElement, SCALE_INVARIANT;
    hyperparams {
        /// Decay of the mean.
        b1: DECAY = 0.9;
        /// Decay of the mean of squared differences.
        b2: DECAY = 0.999;
        /// Added to the root.
        eps: NOT_NEGATIVE = 1e-16;
        /// Added to the mean of squared differences at every step.
        eps_root: NOT_NEGATIVE = 1e-16;
    }
}

/// Scalars of [`ScaleByAcprop`], computed once per step.
#[derive(Clone, Copy, Debug)]
pub struct AcpropScalars<C> {
    mean1: Mean<C>,
    mean2: Mean<C>,
    /// before = of_nu·nu, or 1 where that is at most `unseen`
    nu_weight: C,
    unseen: C,
    eps: C,
    eps_root: C,
}

impl Rule for ScaleByAcprop {
    const SLOTS: &'static [Slot] = &[Slot::signed("mu"), Slot::not_negative("nu")];
    type Slots<C: Real> = [C; 2];
    type Scalars<C: Real> = AcpropScalars<C>;

    fn scalars<C: Real>(&self, clock: Clock) -> AcpropScalars<C> {
        let [b1, b2, eps, eps_root] = Hyperparam::all_at([&self.b1, &self.b2, &self.eps, &self.eps_root], clock.count);
        let mut before = clock;
        before.updates = clock.updates.saturating_sub(1);
        let nu_weight = if clock.updates == 0 { 0.0 } else { 1.0 / before.bias_correction(b2) };
        // Upper bound of `before` without gradients: `eps_root`, and rounding of `steps` and `1 − b2ᵗ`.
        let steps = (clock.updates as f64).min(1.0 / (1.0 - b2));
        let rounding = 2.0 * C::epsilon().as_f64() * steps + 4.0 * f64::EPSILON / (1.0 - b2);
        let unseen = eps_root / (1.0 - b2) * (1.0 + rounding);
        AcpropScalars {
            mean1: Mean::of(b1),
            mean2: Mean::of(b2),
            nu_weight: C::of(nu_weight),
            unseen: C::of(unseen),
            eps: C::of(eps),
            eps_root: C::of(eps_root),
        }
    }

    #[inline(always)]
    fn apply<C: Real>(k: AcpropScalars<C>, [mu, nu]: &mut [C; 2], u: C, _: C) -> C {
        let before = k.nu_weight * *nu;
        let before = if before <= k.unseen { C::one() } else { before };
        let deviation = u - *mu;
        *nu = k.mean2.with(*nu, deviation * deviation) + k.eps_root;
        *mu = k.mean1.with(*mu, u);
        u / (before.sqrt() + k.eps)
    }
}
