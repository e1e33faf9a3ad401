use crate::part::prelude::*;
use crate::transform::moment::{Mean, unbias};

/// Divides a running mean of the updates by the root of the largest running mean of their squares so far.
///
/// # Arithmetic
///
/// Per element, at step `t`, counted from 1:
///
/// ```text
/// mu ← b1·mu + (1 − b1)·u                     starts at 0
/// nu ← b2·nu + (1 − b2)·u²                    starts at 0
/// nu_max ← max(nu_max, nu / (1 − b2ᵗ))        starts at 0; nu itself without bias_correction_nu
/// m̂ = mu / (1 − b1ᵗ)                          mu itself without bias_correction_mu
/// u ← m̂ / (√(nu_max + eps_root) + eps)
/// ```
///
/// # Cost
///
/// Three floats of state per parameter. Fuses; reads no parameters.
///
/// # Errors
///
/// `init` fails if `b1` or `b2` is not in `[0, 1)`, or `eps` or `eps_root` is negative or not finite.
///
/// # Example
///
/// With no memory for the means the largest square remains: the second update is 1/√4².
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::scale_by_amsgrad;
///
/// let optimizer = scale_by_amsgrad().b1(0.0).b2(0.0).eps(0.0);
/// let params = 0.0_f64;
/// let mut state = optimizer.init(&params)?;
/// for (gradient, expected) in [(4.0, 1.0), (1.0, 0.25), (-8.0, -1.0)] {
///     let updates = optimizer.update(&gradient, &mut state, &params)?;
///     assert_eq!(updates.to_vec::<f64>("").unwrap(), [expected]);
/// }
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Reddi, Kale and Kumar, [On the convergence of Adam and beyond](https://arxiv.org/abs/1904.09237), 2018, algorithm 2,
/// which has no bias corrections. Optax,
/// [`scale_by_amsgrad`](https://optax.readthedocs.io/en/latest/api/transformations.html). Differs: moments of 16-bit
/// leaves are `f32` unless `mu_dtype` is set. PyTorch's `Adam(amsgrad=True)` takes the largest of the uncorrected means
/// and corrects that; [the
/// guide](https://docs.rs/gradchain/latest/gradchain/_guide/from_pytorch/index.html#the-same-numbers) has the schedules
/// that give the same.
pub fn scale_by_amsgrad() -> ScaleByAmsgrad {
    ScaleByAmsgrad::with()
}

part! {
    /// See [`scale_by_amsgrad`].
    pub ScaleByAmsgrad as "scale_by_amsgrad": OneElement;
    hyperparams {
        /// Decay of the first moment.
        b1: DECAY = 0.9;
        /// Decay of the second moment.
        b2: DECAY = 0.999;
        /// Added to the root.
        eps: NOT_NEGATIVE = 1e-8;
        /// Added under the root.
        eps_root: NOT_NEGATIVE = 0.0;
    }
    options {
        /// Dtype of the first moment; by default the compute type.
        mu_dtype: Option<DType> = None;
        /// If true, corrects the bias of the first moment from its start at zero.
        bias_correction_mu: bool = true;
        /// If true, corrects the bias of the second moment from its start at zero.
        bias_correction_nu: bool = true;
    }
    effect Self::effect_of;
}

impl ScaleByAmsgrad {
    fn effect_of(&self) -> Effect {
        Effect::SCALE_INVARIANT.with_momentum(&self.b1)
    }
}

/// Scalars of [`ScaleByAmsgrad`], computed once per step.
#[derive(Clone, Copy, Debug)]
pub struct AmsgradScalars<C> {
    mean1: Mean<C>,
    mean2: Mean<C>,
    unbias1: C,
    unbias2: C,
    eps: C,
    eps_root: C,
}

impl Rule for ScaleByAmsgrad {
    const SLOTS: &'static [Slot] = &[Slot::signed("mu"), Slot::not_negative("nu"), Slot::not_negative("nu_max")];
    type Slots<C: Real> = [C; 3];
    type Scalars<C: Real> = AmsgradScalars<C>;

    fn scalars<C: Real>(&self, clock: Clock) -> AmsgradScalars<C> {
        let [b1, b2, eps, eps_root] = Hyperparam::all_at([&self.b1, &self.b2, &self.eps, &self.eps_root], clock.count);
        AmsgradScalars {
            mean1: Mean::of(b1),
            mean2: Mean::of(b2),
            unbias1: C::of(unbias(clock, b1, self.bias_correction_mu)),
            unbias2: C::of(unbias(clock, b2, self.bias_correction_nu)),
            eps: C::of(eps),
            eps_root: C::of(eps_root),
        }
    }

    #[inline(always)]
    fn apply<C: Real>(k: AmsgradScalars<C>, [mu, nu, most]: &mut [C; 3], u: C, _: C) -> C {
        *mu = k.mean1.with(*mu, u);
        *nu = k.mean2.with(*nu, u * u);
        let now = k.unbias2 * *nu;
        // `max` would drop NaN.
        *most = if now <= *most { *most } else { now };
        k.unbias1 * *mu / ((*most + k.eps_root).sqrt() + k.eps)
    }
}
