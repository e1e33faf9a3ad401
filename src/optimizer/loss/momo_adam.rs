use super::momo::Model;
use crate::element::Real;
use crate::engine::{
    Clock, InitContext, SlotsJob, SlotsWriter, StepContext, Sums, Tile, slots_read, slots_write, sum_pairs,
};
use crate::error::Result;
use crate::macros::builder;
use crate::optimizer::measured::{Measured, measured_stage};
use crate::schedule::Hyperparam;
use crate::state::{Count, Moments, Scalar};
use crate::wrapper::state_fields;

/// MoMo-Adam: [`adamw`](crate::adamw()) whose step size follows from the loss, as Polyak's does, and is at most the learning
/// rate.
///
/// A step needs the [value](crate::extra::value) of the loss. See [`momo`](crate::momo()) for the idea.
///
/// # Arithmetic
///
/// At step `t`, counted from 1, with `c = 1 − b1ᵗ`, `α` the learning rate, `λ = 1 + α·weight_decay`, and sums over all leaves
/// in `f64`:
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
/// The bound is `lower_bound`, or with `adapt_lower_bound` an estimate that starts there. With `h = f − g`, before the step
///
/// ```text
/// bound ← max((λ·h + Σ m·p) / (2·c·λ), lower_bound)           where λ·h + Σ m·p < λ·c·bound
/// ```
///
/// and after it `bound ← max((h + Σ m·p − τ·Σ m²/D / 2) / c, lower_bound)`.
///
/// Defaults: `learning_rate` 0.01, `b1` 0.9, `b2` 0.999, `eps` 1e-8, `lower_bound` 0, `weight_decay` 0, the bound not adapted.
///
/// # Cost
///
/// Two floats of state for each parameter. Two passes, between which nothing is stored.
///
/// # Errors
///
/// `init` fails if `b1` or `b2` is not in `[0, 1)`, `eps` is negative, or an argument is not finite.
///
/// # Example
///
/// The first step is adam's where the loss lets it: of the length of the learning rate.
///
/// ```
/// use gradchain::extra;
/// use gradchain::prelude::*;
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
    MomoAdam {
        learning_rate: 1e-2.into(),
        b1: 0.9.into(),
        b2: 0.999.into(),
        eps: 1e-8.into(),
        lower_bound: 0.0.into(),
        weight_decay: 0.0.into(),
        adapt_lower_bound: false,
    }
}

/// See [`momo_adam`](momo_adam()).
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a transformation does nothing until it is given gradients"]
pub struct MomoAdam {
    /// The largest step size.
    pub learning_rate: Hyperparam,
    /// Decay of the first moment, in `[0, 1)`.
    pub b1: Hyperparam,
    /// Decay of the second moment, in `[0, 1)`.
    pub b2: Hyperparam,
    /// Added to the root; not negative.
    pub eps: Hyperparam,
    /// What the loss is known not to be less than.
    pub lower_bound: Hyperparam,
    /// The decay of the weights for each unit of learning rate.
    pub weight_decay: Hyperparam,
    /// Whether a better bound is estimated.
    pub adapt_lower_bound: bool,
}

builder! {
    MomoAdam as "momo_adam" {
        hyperparams: learning_rate, b1, b2, eps, lower_bound, weight_decay;
        options: adapt_lower_bound: bool;
    }
}
measured_stage!(MomoAdam; state MomoAdamState; run MomoAdamRun; needs crate::needs::Value);

/// What [`momo_adam`](momo_adam()) remembers.
#[derive(Clone, Debug)]
pub struct MomoAdamState {
    /// Steps done.
    pub count: Count,
    /// The running mean of losses, `f`.
    pub barf: Scalar,
    /// The running mean of products of gradients and parameters, `g`.
    pub gamma: Scalar,
    /// The bound.
    pub lb: Scalar,
    /// First moments.
    pub exp_avg: Moments,
    /// Second moments.
    pub exp_avg_sq: Moments,
}

state_fields!(MomoAdamState<> { count, barf, gamma, lb, exp_avg, exp_avg_sq });

/// What [`MomoAdam`] works out once a step.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct MomoAdamRun {
    betas: [f64; 2],
    value: f64,
    model: Model,
    /// What `v` is multiplied by, and what is added to its root.
    unbias: f64,
    eps: f64,
    tau: f64,
}

impl MomoAdamRun {
    fn preconditioner<C: Real>(&self) -> Preconditioner<C> {
        Preconditioner { unbias: C::of(self.unbias), eps: C::of(self.eps) }
    }
}

impl Measured for MomoAdam {
    const NAME: &'static str = "momo_adam";
    const SUMS: usize = 3;
    type State = MomoAdamState;
    type Run = MomoAdamRun;

    fn check_arguments(&self) -> Result<()> {
        let name = <Self as Measured>::NAME;
        for (argument, beta) in [("b1", &self.b1), ("b2", &self.b2)] {
            beta.validate(name, argument, "in [0, 1)", |x| (0.0..1.0).contains(&x))?;
        }
        self.eps.validate(name, "eps", "finite and not negative", |x| x >= 0.0 && x.is_finite())?;
        for (argument, value) in [
            ("learning_rate", &self.learning_rate),
            ("lower_bound", &self.lower_bound),
            ("weight_decay", &self.weight_decay),
        ] {
            value.validate(name, argument, "finite", f64::is_finite)?;
        }
        Ok(())
    }

    fn first_state(&self, at: &InitContext<'_>) -> Result<MomoAdamState> {
        Ok(MomoAdamState {
            count: Count::default(),
            barf: Scalar::default(),
            gamma: Scalar::default(),
            lb: Scalar::new(self.lower_bound.at(0)),
            exp_avg: at.moments()?,
            exp_avg_sq: at.moments()?,
        })
    }

    fn start(&self, state: &mut MomoAdamState, at: &StepContext<'_>) -> MomoAdamRun {
        let clock = Clock { count: state.count.get() };
        state.count.increment();
        let count = clock.count;
        let [b1, b2] = [&self.b1, &self.b2].map(|b| b.at(count));
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
            unbias: 1.0 / clock.bias_correction(b2),
            eps: self.eps.at(count),
            tau: 0.0,
        }
    }

    fn take_in<C: Real>(&self, state: &MomoAdamState, run: &MomoAdamRun, sums: usize, tile: &mut Tile<'_, C>) {
        let job = TakeIn {
            keep: run.betas.map(C::of),
            take: run.betas.map(|b| C::of(1.0 - b)),
            preconditioner: run.preconditioner(),
        };
        slots_read([&state.exp_avg, &state.exp_avg_sq], sums, tile, &job);
    }

    fn decide(&self, state: &mut MomoAdamState, run: &mut MomoAdamRun, sums: Sums<'_>) {
        let [dot, norm, product] = [0, 1, 2].map(|i| sums.total(i));
        let (b1, value) = (run.betas[0], run.value);
        state.barf.set(b1 * state.barf.get() + (1.0 - b1) * value);
        state.gamma.set(b1 * state.gamma.get() + (1.0 - b1) * dot);
        run.tau = run.model.step(&mut state.lb, state.barf.get() - state.gamma.get(), product, norm);
    }

    fn give_out<C: Real>(&self, state: &MomoAdamState, run: &MomoAdamRun, tile: &mut Tile<'_, C>) {
        let (tau, decay) = (C::of(run.tau), C::of(run.model.decay()));
        let job = GiveOut { tau, decay, preconditioner: run.preconditioner() };
        slots_write([&state.exp_avg, &state.exp_avg_sq], 0, tile, &job);
    }

    fn bytes(state: &MomoAdamState, leaf: usize) -> [usize; 2] {
        let size = state.exp_avg.dtype(leaf).map_or(0, |dtype| dtype.size());
        [4 * size, 2 * size]
    }
}

#[derive(Clone, Copy)]
struct Preconditioner<C> {
    unbias: C,
    eps: C,
}

impl<C: Real> Preconditioner<C> {
    #[inline(always)]
    fn at(self, v: C) -> C {
        self.eps + (self.unbias * v).sqrt()
    }
}

struct TakeIn<C> {
    keep: [C; 2],
    take: [C; 2],
    preconditioner: Preconditioner<C>,
}

impl<C: Real> SlotsJob<C, 2> for TakeIn<C> {
    #[inline(always)]
    fn read(&self, u: &[C], p: &[C], [m, v]: [&mut [C]; 2], sums: &mut [f64]) {
        let (keep, take, by) = (self.keep, self.take, self.preconditioner);
        for ((u, m), v) in u.iter().zip(&mut *m).zip(&mut *v) {
            *m = keep[0] * *m + take[0] * *u;
            *v = keep[1] * *v + take[1] * (*u * *u);
        }
        sums[0] += sum_pairs(u, p, |u, p| u.as_f64() * p.as_f64());
        sums[1] += sum_pairs(m, v, |m, v| m.as_f64() * (m / by.at(v)).as_f64());
        sums[2] += sum_pairs(m, p, |m, p| m.as_f64() * p.as_f64());
    }
}

struct GiveOut<C> {
    tau: C,
    decay: C,
    preconditioner: Preconditioner<C>,
}

impl<C: Real> SlotsWriter<C, 2> for GiveOut<C> {
    #[inline(always)]
    fn write(&self, u: &mut [C], p: &[C], [m, v]: [&mut [C]; 2], _: &mut [f64]) {
        for (((u, p), m), v) in u.iter_mut().zip(p).zip(m).zip(v) {
            *u = -self.tau * *m / self.preconditioner.at(*v) - self.decay * *p;
        }
    }
}
