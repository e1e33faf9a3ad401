use crate::element::Real;
use crate::engine::{
    Clock, InitContext, SlotsJob, SlotsWriter, StepContext, Sums, Tile, slots_read, slots_write, sum_tile, sum_triples,
};
use crate::error::{Error, Result};
use crate::macros::builder;
use crate::optimizer::measured::{Measured, larger, measured_stage};
use crate::schedule::Hyperparam;
use crate::state::{Count, Moments, Scalar};
use crate::wrapper::state_fields;

/// Prodigy: AdamW that finds its learning rate by itself, from how far the parameters have come.
///
/// It estimates the distance `d` from the first parameters to the solution from below; the estimate only grows. A schedule
/// for `learning_rate` is relative to it, with 1 for the peak.
///
/// # Arithmetic
///
/// At step `t`, counted from 1, with `p₀` the first parameters, `b1, b2 = betas`, `b3` = `beta3` or `√b2`, and
/// `lr = d · learning_rate · √(1 − b2ᵗ) / (1 − b1ᵗ)`:
///
/// ```text
/// m ← b1·m + (1 − b1)·d·u
/// v ← b2·v + (1 − b2)·d²·u²
/// s ← b3·s + lr·d·u / estim_lr0                        with safeguard_warmup: d·d·u / estim_lr0
/// n ← b3·n + d·lr·Σ u·(p₀ − p) / estim_lr0             sums over all leaves, in f64
/// d' = max(d, estim_lr_coef · n / Σ |s|)               d where the sum is 0
/// u ← −lr·m / (√v + d'·eps) − lr·weight_decay·p
/// d ← d'
/// ```
///
/// Defaults: `learning_rate` 1, `betas` (0.9, 0.999), `eps` 1e-8, `estim_lr0` 1e-6, `estim_lr_coef` 1, `weight_decay` 0, no
/// safeguard.
///
/// # Cost
///
/// Four floats of state for each parameter. Two passes, between which nothing is stored.
///
/// # Errors
///
/// `init` fails if a beta is not in `[0, 1)`, `eps` is negative or not finite, `estim_lr0` is not positive and finite, or
/// `estim_lr_coef` or `weight_decay` is not finite.
///
/// # Example
///
/// From an estimate that is much too small it comes to the minimum of `(p − 3)²/2`:
///
/// ```
/// use gradchain::prelude::*;
///
/// let optimizer = prodigy();
/// let mut params = 0.0_f64;
/// let mut state = optimizer.init(&params)?;
/// for _ in 0..400 {
///     let gradient = params - 3.0;
///     optimizer.step(&mut params, &gradient, &mut state)?;
/// }
/// assert!((params - 3.0).abs() < 0.1);
/// assert!(state.estim_lr.get() > 0.1);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Mishchenko and Defazio, [Prodigy: an expeditiously adaptive parameter-free learner](https://arxiv.org/abs/2306.06101),
/// 2023, algorithm 4. Optax, [`contrib.prodigy`](https://optax.readthedocs.io/en/latest/api/contrib.html). Differs: while all
/// gradients have been zero the estimate stays, where Optax divides 0 by 0 and is NaN ever after.
pub fn prodigy() -> Prodigy {
    Prodigy {
        learning_rate: 1.0.into(),
        eps: 1e-8.into(),
        estim_lr0: 1e-6.into(),
        estim_lr_coef: 1.0.into(),
        weight_decay: 0.0.into(),
        betas: (0.9, 0.999),
        beta3: None,
        safeguard_warmup: false,
    }
}

/// See [`prodigy`](prodigy()).
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a transformation does nothing until it is given gradients"]
pub struct Prodigy {
    /// What the estimate is multiplied by.
    pub learning_rate: Hyperparam,
    /// Added to the root, for each unit of the estimate; not negative.
    pub eps: Hyperparam,
    /// The first estimate: positive, and rather too small.
    pub estim_lr0: Hyperparam,
    /// What new estimates are multiplied by.
    pub estim_lr_coef: Hyperparam,
    /// The decay of the weights for each unit of learning rate.
    pub weight_decay: Hyperparam,
    /// Decays of the first and second moment, in `[0, 1)`.
    pub betas: (f64, f64),
    /// Decay of what the estimate is made of, in `[0, 1)`; by default the root of the second of `betas`.
    pub beta3: Option<Hyperparam>,
    /// Whether the estimate leaves out the learning rate, as a warm-up requires.
    pub safeguard_warmup: bool,
}

builder! {
    Prodigy as "prodigy" {
        hyperparams: learning_rate, eps, estim_lr0, estim_lr_coef, weight_decay;
        options: betas: (f64, f64), safeguard_warmup: bool;
        optional: beta3;
    }
}
measured_stage!(Prodigy; state ProdigyState; run ProdigyRun; needs crate::needs::Nothing);

/// What [`prodigy`](prodigy()) remembers.
#[derive(Clone, Debug)]
pub struct ProdigyState {
    /// Steps done.
    pub count: Count,
    /// The estimate of the distance to the solution, which is the learning rate.
    pub estim_lr: Scalar,
    /// The running sum `n`.
    pub numerator_weighted: Scalar,
    /// First moments.
    pub exp_avg: Moments,
    /// Second moments.
    pub exp_avg_sq: Moments,
    /// The running sum `s` of gradients.
    pub grad_sum: Moments,
    /// The first parameters.
    pub params0: Moments,
}

state_fields!(ProdigyState<> {
    count, estim_lr, numerator_weighted, exp_avg, exp_avg_sq, grad_sum, params0
});

/// What [`Prodigy`] works out once a step.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct ProdigyRun {
    count: u64,
    betas: [f64; 3],
    /// The estimate before this step, and after it.
    estimates: [f64; 2],
    /// The learning rate.
    rate: f64,
    /// What `s` grows by for each unit of gradient.
    of_gradient: f64,
    start: f64,
}

impl Measured for Prodigy {
    const NAME: &'static str = "prodigy";
    const SUMS: usize = 2;
    type State = ProdigyState;
    type Run = ProdigyRun;

    fn check_arguments(&self) -> Result<()> {
        let name = <Self as Measured>::NAME;
        let (b1, b2) = self.betas;
        let is_decay = |beta: f64| (0.0..1.0).contains(&beta);
        if let Some(beta) = [b1, b2].into_iter().find(|beta| !is_decay(*beta)) {
            return Err(Error::argument(name, "betas", "in [0, 1)", beta));
        }
        if let Some(beta3) = &self.beta3 {
            beta3.validate(name, "beta3", "in [0, 1)", is_decay)?;
        }
        self.learning_rate.validate(name, "learning_rate", "finite", f64::is_finite)?;
        self.eps.validate(name, "eps", "finite and not negative", |x| x >= 0.0 && x.is_finite())?;
        self.estim_lr0.validate(name, "estim_lr0", "positive and finite", |x| x > 0.0 && x.is_finite())?;
        self.estim_lr_coef.validate(name, "estim_lr_coef", "finite", f64::is_finite)?;
        self.weight_decay.validate(name, "weight_decay", "finite", f64::is_finite)
    }

    fn first_state(&self, at: &InitContext<'_>) -> Result<ProdigyState> {
        Ok(ProdigyState {
            count: Count::default(),
            estim_lr: Scalar::new(self.estim_lr0.at(0)),
            numerator_weighted: Scalar::default(),
            exp_avg: at.moments()?,
            exp_avg_sq: at.moments()?,
            grad_sum: at.moments()?,
            params0: at.params_as_moments()?,
        })
    }

    fn start(&self, state: &mut ProdigyState, _: &StepContext<'_>) -> ProdigyRun {
        let clock = Clock { count: state.count.get() };
        state.count.increment();
        let (b1, b2) = self.betas;
        let (estimate, start) = (state.estim_lr.get(), self.estim_lr0.at(clock.count));
        let unbias = clock.bias_correction(b2).sqrt() / clock.bias_correction(b1);
        let rate = estimate * self.learning_rate.at(clock.count) * unbias;
        ProdigyRun {
            count: clock.count,
            betas: [b1, b2, self.beta3.as_ref().map_or(b2.sqrt(), |beta3| beta3.at(clock.count))],
            estimates: [estimate; 2],
            rate,
            of_gradient: if self.safeguard_warmup { estimate } else { rate } * estimate / start,
            start,
        }
    }

    fn take_in<C: Real>(&self, state: &ProdigyState, run: &ProdigyRun, sums: usize, tile: &mut Tile<'_, C>) {
        let ([b1, b2, b3], [d, _]) = (run.betas, run.estimates);
        let keep = [b1, b2, b3].map(C::of);
        let take = [(1.0 - b1) * d, (1.0 - b2) * d * d, run.of_gradient].map(C::of);
        let slots = [&state.exp_avg, &state.exp_avg_sq, &state.grad_sum, &state.params0];
        slots_read(slots, sums, tile, &TakeIn { keep, take });
    }

    fn decide(&self, state: &mut ProdigyState, run: &mut ProdigyRun, sums: Sums<'_>) {
        let [progress, path] = [sums.total(0), sums.total(1)];
        let [d, _] = run.estimates;
        let numerator = run.betas[2] * state.numerator_weighted.get() + d / run.start * run.rate * progress;
        state.numerator_weighted.set(numerator);
        // Nothing has been learnt of the distance while all gradients were zero.
        if path != 0.0 {
            run.estimates[1] = larger(d, self.estim_lr_coef.at(run.count) * numerator / path);
        }
        state.estim_lr.set(run.estimates[1]);
    }

    fn give_out<C: Real>(&self, state: &ProdigyState, run: &ProdigyRun, tile: &mut Tile<'_, C>) {
        let job = GiveOut {
            rate: C::of(run.rate),
            eps: C::of(run.estimates[1] * self.eps.at(run.count)),
            decay: C::of(run.rate * self.weight_decay.at(run.count)),
        };
        slots_write([&state.exp_avg, &state.exp_avg_sq], 0, tile, &job);
    }

    fn bytes(state: &ProdigyState, leaf: usize) -> [usize; 2] {
        let size = state.params0.dtype(leaf).map_or(0, |dtype| dtype.size());
        [7 * size, 2 * size]
    }
}

struct TakeIn<C> {
    keep: [C; 3],
    take: [C; 3],
}

impl<C: Real> SlotsJob<C, 4> for TakeIn<C> {
    #[inline(always)]
    fn read(&self, u: &[C], p: &[C], [m, v, s, p0]: [&mut [C]; 4], sums: &mut [f64]) {
        let (keep, take) = (self.keep, self.take);
        for (((u, m), v), s) in u.iter().zip(&mut *m).zip(&mut *v).zip(&mut *s) {
            *m = keep[0] * *m + take[0] * *u;
            *v = keep[1] * *v + take[1] * (*u * *u);
            *s = keep[2] * *s + take[2] * *u;
        }
        sums[0] += sum_triples(u, p, p0, |u, p, p0| u.as_f64() * (p0.as_f64() - p.as_f64()));
        sums[1] += sum_tile(s, |s| s.as_f64().abs());
    }
}

struct GiveOut<C> {
    rate: C,
    eps: C,
    decay: C,
}

impl<C: Real> SlotsWriter<C, 2> for GiveOut<C> {
    #[inline(always)]
    fn write(&self, u: &mut [C], p: &[C], [m, v]: [&mut [C]; 2], _: &mut [f64]) {
        for (((u, p), m), v) in u.iter_mut().zip(p).zip(m).zip(v) {
            *u = -self.rate * *m / (v.sqrt() + self.eps) - self.decay * *p;
        }
    }
}
