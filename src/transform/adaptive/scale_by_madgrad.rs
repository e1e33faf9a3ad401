use crate::part::prelude::*;

/// Interpolates towards the minimizer of a model of all past gradients: dual averaging scaled by a cube root.
///
/// The update is the step itself, not a direction: no later stage may scale it.
///
/// # Arithmetic
///
/// At step `t`, counted from 1, with `x0` the parameters in `init`:
///
/// ```text
/// λ = (learning_rate + eps)·√t
/// s ← s + λ·u
/// v ← v + λ·u²
/// z = x0 − s / (∛v + eps)                 x0 where the divisor is 0
/// u ← (1 − momentum)·(z − p)
/// ```
///
/// # Cost
///
/// Three floats of state per parameter. Fuses; reads parameters. The cube root is computed by multiplications in the
/// compute type, to two units in the last place, and takes longer than the memory traffic (`docs/performance.md`).
///
/// # Errors
///
/// `init` fails if `momentum` is not in `[0, 1)`, `eps` is negative or not finite, or `learning_rate` is not finite.
///
/// # Example
///
/// The first step divides `λ·u`, here `4·4`, by the cube root of `λ·u²`, here of `4·16`:
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::scale_by_madgrad;
///
/// let optimizer = scale_by_madgrad(4.0).momentum(0.5).eps(0.0);
/// let mut params = 10.0_f64;
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &4.0_f64, &mut state)?;
/// assert_eq!(params, 10.0 - 0.5 * (16.0 / 4.0));
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Defazio and Jelassi, [Adaptivity without compromise: a momentumized, adaptive, dual averaged gradient method for
/// stochastic optimization](https://arxiv.org/abs/2101.11075), 2021, algorithm 1. Optax,
/// [`contrib.scale_by_madgrad`](https://optax.readthedocs.io/en/latest/api/contrib.html). Differs: with an `eps` of 0,
/// Optax makes NaN where all gradients were zero; state of 16-bit leaves is `f32`. The authors' code adds `eps` to the
/// learning rate, as here, which the paper does not.
pub fn scale_by_madgrad(learning_rate: impl IntoHyperparam) -> ScaleByMadgrad {
    ScaleByMadgrad::with(learning_rate)
}

part! {
    /// See [`scale_by_madgrad`].
    pub ScaleByMadgrad as "scale_by_madgrad": OneElement;
    required {
        /// Weight of a gradient.
        learning_rate: FINITE;
    }
    hyperparams {
        /// Momentum: the kept fraction of the distance to `z`.
        momentum: DECAY = 0.9;
        /// Added to the cube root, and to the learning rate.
        eps: NOT_NEGATIVE = 1e-6;
    }
    effect Self::effect_of;
}

impl ScaleByMadgrad {
    fn effect_of(&self) -> Effect {
        Effect::STEP.at_rate(&self.learning_rate)
    }
}

/// Scalars of [`ScaleByMadgrad`], computed once per step.
#[derive(Clone, Copy, Debug)]
pub struct MadgradScalars<C> {
    lambda: C,
    take: C,
    eps: C,
}

impl Rule for ScaleByMadgrad {
    const SLOTS: &'static [Slot] =
        &[Slot::not_negative("grad_sum_sq"), Slot::exact("s"), Slot::exact("x0").starts_as_params()];
    const READS_PARAMS: bool = true;
    type Slots<C: Real> = [C; 3];
    type Scalars<C: Real> = MadgradScalars<C>;

    fn scalars<C: Real>(&self, clock: Clock) -> MadgradScalars<C> {
        let [rate, momentum, eps] = Hyperparam::all_at([&self.learning_rate, &self.momentum, &self.eps], clock.count);
        MadgradScalars { lambda: C::of((rate + eps) * clock.t().sqrt()), take: C::of(1.0 - momentum), eps: C::of(eps) }
    }

    #[inline(always)]
    fn apply<C: Real>(k: MadgradScalars<C>, [v, s, x0]: &mut [C; 3], u: C, p: C) -> C {
        *v += k.lambda * (u * u);
        *s += k.lambda * u;
        let root = v.cube_root() + k.eps;
        let step = if root == C::zero() { root } else { *s / root };
        k.take * ((*x0 - step) - p)
    }
}
