use crate::part::prelude::*;
use crate::transform::moment::{Mean, first_moment, growing_first_moment};

/// Divides a running mean of the updates by the root of a running mean of their squares.
///
/// # Arithmetic
///
/// Per element, at step `t`, counted from 1:
///
/// ```text
/// m ← b1·m + (1 − b1)·u             first moment, starts at 0
/// v ← b2·v + (1 − b2)·u²            second moment, starts at 0
/// m̂ = m / (1 − b1ᵗ)                 or, with nesterov: b1·m / (1 − b1ᵗ⁺¹) + (1 − b1)·u / (1 − b1ᵗ)
/// u ← m̂ / (√(v / (1 − b2ᵗ) + eps_root) + eps)
/// ```
///
/// With `momentum_decay` the momentum grows from about `b1 / 2` to `b1`, and is Nesterov momentum even without
/// `nesterov`:
///
/// ```text
/// μₜ = b1·(1 − 0.96^(t·momentum_decay) / 2);  πₜ = μ₁·…·μₜ
/// m̂ = μₜ₊₁·m / (1 − πₜ·μₜ₊₁) + (1 − μₜ)·u / (1 − πₜ)
/// ```
///
/// Scalars are computed once per step in `f64`; moments of 16-bit leaves are `f32` unless
/// [`mu_dtype`](ScaleByAdam::mu_dtype) or [`nu_dtype`](ScaleByAdam::nu_dtype) is set.
///
/// # Cost
///
/// Two floats of state per parameter. Fuses; reads no parameters.
///
/// # Errors
///
/// `init` fails if `b1` or `b2` is not in `[0, 1)`, or `eps`, `eps_root` or `momentum_decay` is negative or not finite.
///
/// # Example
///
/// The first update is the sign of the gradient, whatever its size:
///
/// ```
/// use gradchain::prelude::*;
///
/// let optimizer = scale_by_adam().eps(0.0);
/// let params = vec![0.0_f64, 0.0];
/// let updates = optimizer.update(&vec![1e-3_f64, -5.0], &mut optimizer.init(&params)?, &params)?;
/// approx::assert_relative_eq!(&updates.to_vec::<f64>("").unwrap()[..], &[1.0, -1.0][..], max_relative = 1e-12);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Kingma and Ba, [Adam: a method for stochastic optimization](https://arxiv.org/abs/1412.6980), 2014, algorithm 1;
/// Dozat, [Incorporating Nesterov momentum into Adam](https://openreview.net/forum?id=OM0jvwB8jIp57ZJjtNEZ), 2016.
/// Optax, [`scale_by_adam`](https://optax.readthedocs.io/en/latest/api/transformations.html). Differs: `nu_dtype`.
/// PyTorch's `Adam` has no `eps_root`; `momentum_decay` is that of its `NAdam`. Where `b1` is scheduled, each `μ` is
/// made with the `b1` of this step.
pub fn scale_by_adam() -> ScaleByAdam {
    ScaleByAdam::with()
}

part! {
    /// See [`scale_by_adam`].
    pub ScaleByAdam as "scale_by_adam": OneElement;
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
        /// Dtype of the second moment; by default the compute type. A `bf16` second moment cannot decrease: a decay by
        /// `1 − b2` = 0.001 is less than half its last bit, and is rounded away.
        nu_dtype: Option<DType> = None;
        /// If true, the first moment uses Nesterov momentum.
        nesterov: bool = false;
        /// Growth rate of Nesterov's momentum; by default the momentum is `b1` from the first step on.
        momentum_decay: Option<f64> = None, NOT_NEGATIVE;
    }
    effect Self::effect_of;
}

impl ScaleByAdam {
    fn effect_of(&self) -> Effect {
        Effect::SCALE_INVARIANT.with_momentum(&self.b1)
    }
}

/// Scalars of [`ScaleByAdam`], computed once per step.
#[derive(Clone, Copy, Debug)]
pub struct AdamScalars<C> {
    mean1: Mean<C>,
    mean2: Mean<C>,
    /// m̂ = of_mean·m + of_update·u
    mean_weight: C,
    update_weight: C,
    unbias2: C,
    eps: C,
    eps_root: C,
}

impl Rule for ScaleByAdam {
    const SLOTS: &'static [Slot] = &[Slot::signed("mu"), Slot::not_negative("nu")];
    type Slots<C: Real> = [C; 2];
    type Scalars<C: Real> = AdamScalars<C>;

    fn scalars<C: Real>(&self, clock: Clock) -> AdamScalars<C> {
        let [b1, b2] = Hyperparam::all_at([&self.b1, &self.b2], clock.count);
        let (mean_weight, update_weight) = match self.momentum_decay {
            Some(momentum_decay) => growing_first_moment(clock, b1, momentum_decay),
            None => first_moment(clock, b1, self.nesterov),
        };
        AdamScalars {
            mean1: Mean::of(b1),
            mean2: Mean::of(b2),
            mean_weight: C::of(mean_weight),
            update_weight: C::of(update_weight),
            unbias2: C::of(1.0 / clock.bias_correction(b2)),
            eps: C::of(self.eps.at(clock.count)),
            eps_root: C::of(self.eps_root.at(clock.count)),
        }
    }

    #[inline(always)]
    fn apply<C: Real>(k: AdamScalars<C>, [m, v]: &mut [C; 2], u: C, _: C) -> C {
        *m = k.mean1.with(*m, u);
        *v = k.mean2.with(*v, u * u);
        let ahead = k.mean_weight * *m + k.update_weight * u;
        ahead / ((k.unbias2 * *v + k.eps_root).sqrt() + k.eps)
    }
}
