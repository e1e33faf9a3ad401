use super::momo::{Model, MomoState, mean_product};
use crate::needs::Value;
use crate::part::prelude::*;

/// MoMo-Adam: [`adamw`](crate::adamw()) with a Polyak step size from the loss, at most the learning rate.
///
/// A step needs the [value](crate::extra::value) of the loss. See [`momo`](crate::optimizer::momo()) for the idea.
///
/// Needs the feature `contrib`.
///
/// # Arithmetic
///
/// At step `t`, counted from 1, with `c = 1 − b1ᵗ`, `α` the learning rate, `λ = 1 + α·weight_decay`, and sums over all
/// leaves in `f64`:
///
/// ```text
/// m ← b1·m + (1 − b1)·u
/// v ← b2·v + (1 − b2)·u²
/// f ← b1·f + (1 − b1)·value
/// g ← b1·g + (1 − b1)·Σ u·p
/// D = eps + √(v / (1 − b2ᵗ))
/// τ = min(α / c, max(λ·(f − c·bound − g) + Σ m·p, 0) / Σ m²/D)      0 where that sum is not more than 2.2e-16
/// u ← −τ·m/D − (α·weight_decay / λ)·p
/// ```
///
/// The bound is `lower_bound`, or with `adapt_lower_bound` an estimate that starts there. With `h = f − g`, before the
/// step
///
/// ```text
/// bound ← max((λ·h + Σ m·p) / (2·c·λ), lower_bound)           where λ·h + Σ m·p < λ·c·bound
/// ```
///
/// and after it `bound ← max((h + Σ m·p − τ·Σ m²/D / 2) / c, lower_bound)`.
///
/// `m`, `v` and `g` are per leaf: they wait together while the leaf is frozen or lacks a gradient, and `g` is summed
/// over the leaves of the step. `f` and its bias correction cover all steps.
///
/// Defaults: `learning_rate` 0.01, `b1` 0.9, `b2` 0.999, `eps` 1e-8, `lower_bound` 0, `weight_decay` 0, the bound not
/// adapted.
///
/// # Cost
///
/// Two floats of state per parameter. Two passes, between which nothing is stored.
///
/// # Errors
///
/// `init` fails if `b1` or `b2` is not in `[0, 1)`, `eps` is negative, or an argument is not finite.
///
/// # Example
///
/// The first step is Adam's if the loss allows it: of the length of the learning rate.
///
/// ```
/// use gradchain::extra;
/// use gradchain::prelude::*;
/// use gradchain::optimizer::momo_adam;
///
/// let optimizer = momo_adam().learning_rate(0.5).eps(0.0);
/// let mut params = 2.0_f64;
/// let mut state = optimizer.init(&params)?;
/// optimizer.step_with(&mut params, &2.0, extra::value(2.0), &mut state)?;
/// approx::assert_relative_eq!(params, 1.5, max_relative = 1e-12);
/// // The loss is 0 already: there is nothing to gain.
/// let mut state = optimizer.init(&params)?;
/// optimizer.step_with(&mut params, &2.0, extra::value(0.0), &mut state)?;
/// approx::assert_relative_eq!(params, 1.5, max_relative = 1e-12);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Schaipp, Ohana, Eickenberg, Defazio and Gower, [MoMo: momentum models for adaptive learning
/// rates](https://arxiv.org/abs/2305.07583), 2023, algorithms 2 and 3. Optax,
/// [`contrib.momo_adam`](https://optax.readthedocs.io/en/latest/api/contrib.html). Differs: none but `f64` sums.
pub fn momo_adam() -> MomoAdam {
    MomoAdam::with()
}

part! {
    /// See [`momo_adam`](momo_adam()).
    pub MomoAdam as "momo_adam": TwoPass<Value>;
    hyperparams {
        /// The largest step size.
        learning_rate: FINITE = 1e-2;
        /// Decay of the first moment.
        b1: DECAY = 0.9;
        /// Decay of the second moment.
        b2: DECAY = 0.999;
        /// Added to the root.
        eps: NOT_NEGATIVE = 1e-8;
        /// Known lower bound of the loss.
        lower_bound: FINITE = 0.0;
        /// The decoupled weight decay, multiplied by the learning rate.
        weight_decay: FINITE = 0.0;
    }
    options {
        /// If true, estimates a better bound.
        adapt_lower_bound: bool = false;
    }
    effect Self::effect_of;
}

impl MomoAdam {
    fn effect_of(&self) -> Effect {
        Effect::STEP.at_rate(&self.learning_rate).decays(&self.weight_decay)
    }
}

/// Scalars of [`MomoAdam`], computed once per step.
#[derive(Clone, Copy, Debug)]
pub struct MomoAdamRun {
    betas: [f64; 2],
    value: f64,
    model: Model,
    clock: Clock,
    eps: f64,
    tau: f64,
}

/// Returns the divisor of the first moment, `D`.
#[inline(always)]
fn divisor<C: Real>([unbias, eps]: [C; 2], v: C) -> C {
    eps + (unbias * v).sqrt()
}

impl MomoAdamRun {
    /// Returns the factor of a leaf's `v`, and the constant added to its root.
    fn divisor(&self, memory: &MomoState, leaf: usize) -> [f64; 2] {
        let clock = self.clock.of_leaf(&memory.updates, leaf);
        [1.0 / clock.bias_correction(self.betas[1]), self.eps]
    }
}

impl TwoPasses for MomoAdam {
    const SLOTS: &'static [Slot] = &[Slot::signed("exp_avg"), Slot::not_negative("exp_avg_sq")];
    const PASSES: Passes = Passes::TWO.reads_params([true; 2]).accesses(&[Access::Write; 2], &[Access::Read; 2]);
    type Memory = MomoState;
    type Run = MomoAdamRun;
    type Slots<C: Real> = [C; 2];
    type Sums<W: Real> = [W; 3];
    /// The weights of the means, the gradient and its square, and the divisor; `τ` and the weight decay.
    type Scalars<C: Real> = ([[C; 2]; 3], [C; 2]);

    fn start(&self, at: &InitContext<'_>) -> Result<MomoState> {
        Ok(MomoState::start(at, &self.lower_bound))
    }

    fn begin(&self, memory: &mut MomoState, at: &StepContext<'_>) -> MomoAdamRun {
        let clock = Clock::begin(&mut memory.count, &mut memory.updates, at);
        let count = clock.count;
        let [b1, b2] = Hyperparam::all_at([&self.b1, &self.b2], count);
        MomoAdamRun {
            betas: [b1, b2],
            value: at.value().unwrap_or(f64::NAN),
            model: Model {
                rate: self.learning_rate.at(count),
                weight_decay: self.weight_decay.at(count),
                lower_bound: self.lower_bound.at(count),
                adapts: self.adapt_lower_bound,
                unbias: clock.bias_correction(b1),
            },
            clock,
            eps: self.eps.at(count),
            tau: 0.0,
        }
    }

    fn scalars<C: Real>(&self, memory: &MomoState, run: &MomoAdamRun, leaf: usize) -> ([[C; 2]; 3], [C; 2]) {
        let means = [run.betas, run.betas.map(|b| 1.0 - b), run.divisor(memory, leaf)];
        (means.map(|pair| pair.map(C::of)), [run.tau, run.model.decay()].map(C::of))
    }

    #[inline(always)]
    fn accumulate<C: Real>(
        ([keep, take, by], _): Self::Scalars<C>,
        [m, v]: &mut [C; 2],
        u: C,
        p: C,
    ) -> (C, [C::Wide; 3]) {
        *m = keep[0] * *m + take[0] * u;
        *v = keep[1] * *v + take[1] * (u * u);
        let direction = *m / divisor(by, *v);
        (u, [u.wide() * p.wide(), m.wide() * direction.wide(), m.wide() * p.wide()])
    }

    fn decide(&self, memory: &mut MomoState, run: &mut MomoAdamRun, sums: Sums<'_>) {
        let [norm, product] = [1, 2].map(|i| sums.total(i));
        let (b1, value) = (run.betas[0], run.value);
        memory.barf.set(b1 * memory.barf.get() + (1.0 - b1) * value);
        let gamma = mean_product(&mut memory.gamma, sums, |_| b1);
        run.tau = run.model.step(&mut memory.lb, memory.barf.get() - gamma, product, norm);
    }

    #[inline(always)]
    fn emit<C: Real>(([.., by], [tau, decay]): Self::Scalars<C>, [m, v]: &mut [C; 2], _: C, p: C) -> C {
        -tau * *m / divisor(by, *v) - decay * p
    }
}
