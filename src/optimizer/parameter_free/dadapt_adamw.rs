use crate::element::Real;
use crate::engine::{
    Clock, InitContext, Outcome, Place, Shape, SlotsWriter, Span, Stage, StepContext, Sums, Tile, slots_write,
    sum_tile, sum_triples,
};
use crate::error::{Error, Result};
use crate::macros::builder;
use crate::optimizer::measured::larger;
use crate::schedule::Hyperparam;
use crate::state::{Count, Moments, Scalar};
use crate::wrapper::state_fields;

/// AdamW by D-adaptation: it finds its learning rate by itself, from how the gradients agree with each other.
///
/// It estimates the distance `d` from the first parameters to the solution from below; the estimate only grows. A schedule
/// for `learning_rate` is relative to it, with 1 for the peak.
///
/// # Arithmetic
///
/// At step `t`, counted from 1, with `b1, b2 = betas`, `b3 = √b2` and `lr = d · learning_rate · √(1 − b2ᵗ) / (1 − b1ᵗ)`:
///
/// ```text
/// a = Σ u·s / (√v + eps)                               sums over all leaves, in f64; s and v from before
/// m ← b1·m + (1 − b1)·lr·u
/// v ← b2·v + (1 − b2)·u²
/// s ← b3·s + (1 − b3)·lr·u
/// n ← b3·n + (1 − b3)·lr·a
/// u ← −m / (√v + eps) − lr·weight_decay·p
/// d ← max(d, n / ((1 − b3)·Σ |s|))                     d where the sum is 0
/// ```
///
/// Defaults: `learning_rate` 1, `betas` (0.9, 0.999), `eps` 1e-8, `estim_lr0` 1e-6 for the first `d`, `weight_decay` 0.
///
/// # Cost
///
/// Three floats of state for each parameter; one pass.
///
/// # Errors
///
/// `init` fails if a beta is not in `[0, 1)`, `eps` is negative or not finite, `estim_lr0` is not positive and finite, or
/// `weight_decay` is not finite.
///
/// # Example
///
/// From an estimate that is much too small it comes to the minimum of `(p − 3)²/2`:
///
/// ```
/// use gradchain::prelude::*;
///
/// let optimizer = dadapt_adamw();
/// let mut params = 0.0_f64;
/// let mut state = optimizer.init(&params)?;
/// for _ in 0..1000 {
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
/// Defazio and Mishchenko, [Learning-rate-free learning by D-adaptation](https://arxiv.org/abs/2301.07733), 2023, algorithm 5.
/// Optax, [`contrib.dadapt_adamw`](https://optax.readthedocs.io/en/latest/api/contrib.html). Differs: while all gradients
/// have been zero the estimate stays, where Optax divides 0 by 0 and is NaN ever after.
pub fn dadapt_adamw() -> DadaptAdamw {
    DadaptAdamw {
        learning_rate: 1.0.into(),
        eps: 1e-8.into(),
        estim_lr0: 1e-6.into(),
        weight_decay: 0.0.into(),
        betas: (0.9, 0.999),
    }
}

/// See [`dadapt_adamw`](dadapt_adamw()).
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a transformation does nothing until it is given gradients"]
pub struct DadaptAdamw {
    /// What the estimate is multiplied by.
    pub learning_rate: Hyperparam,
    /// Added to roots; not negative.
    pub eps: Hyperparam,
    /// The first estimate: positive, and rather too small.
    pub estim_lr0: Hyperparam,
    /// The decay of the weights for each unit of learning rate.
    pub weight_decay: Hyperparam,
    /// Decays of the first and second moment, in `[0, 1)`.
    pub betas: (f64, f64),
}

builder! {
    DadaptAdamw as "dadapt_adamw" {
        hyperparams: learning_rate, eps, estim_lr0, weight_decay;
        options: betas: (f64, f64);
    }
}

/// What [`dadapt_adamw`](dadapt_adamw()) remembers.
#[derive(Clone, Debug)]
pub struct DadaptAdamwState {
    /// Steps done.
    pub count: Count,
    /// The estimate of the distance to the solution, which is the learning rate.
    pub estim_lr: Scalar,
    /// The running sum `n`.
    pub numerator_weighted: Scalar,
    /// First moments, with the learning rate in them.
    pub exp_avg: Moments,
    /// Second moments.
    pub exp_avg_sq: Moments,
    /// The running sum `s` of gradients.
    pub grad_sum: Moments,
}

state_fields!(DadaptAdamwState<> { count, estim_lr, numerator_weighted, exp_avg, exp_avg_sq, grad_sum });

/// What [`DadaptAdamw`] works out once a step.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct DadaptAdamwRun {
    betas: [f64; 3],
    rate: f64,
    eps: f64,
    decay: f64,
}

impl Stage for DadaptAdamw {
    type Needs = crate::needs::Nothing;
    type State = DadaptAdamwState;
    type Run = DadaptAdamwRun;
    type Kernel<C: Real> = ();

    const SHAPE: Shape = Shape { barriers: 0, stateful: 1, reads_params: 1, materializes: 0, sums: 2 };
    const FUSES: bool = false;

    fn validate(&self) -> Result<()> {
        const NAME: &str = "dadapt_adamw";
        for beta in [self.betas.0, self.betas.1] {
            if !(0.0..1.0).contains(&beta) {
                return Err(Error::argument(NAME, "betas", "in [0, 1)", beta));
            }
        }
        self.learning_rate.validate(NAME, "learning_rate", "finite", f64::is_finite)?;
        self.eps.validate(NAME, "eps", "finite and not negative", |x| x >= 0.0 && x.is_finite())?;
        self.estim_lr0.validate(NAME, "estim_lr0", "positive and finite", |x| x > 0.0 && x.is_finite())?;
        self.weight_decay.validate(NAME, "weight_decay", "finite", f64::is_finite)
    }

    fn init_state(&self, at: &InitContext<'_>) -> Result<DadaptAdamwState> {
        Ok(DadaptAdamwState {
            count: Count::default(),
            estim_lr: Scalar::new(self.estim_lr0.at(0)),
            numerator_weighted: Scalar::default(),
            exp_avg: at.moments()?,
            exp_avg_sq: at.moments()?,
            grad_sum: at.moments()?,
        })
    }

    fn begin(&self, state: &mut DadaptAdamwState, _: &StepContext<'_>) -> DadaptAdamwRun {
        let clock = Clock { count: state.count.get() };
        state.count.increment();
        let (b1, b2) = self.betas;
        let unbias = clock.bias_correction(b2).sqrt() / clock.bias_correction(b1);
        let rate = state.estim_lr.get() * self.learning_rate.at(clock.count) * unbias;
        DadaptAdamwRun {
            betas: [b1, b2, b2.sqrt()],
            rate,
            eps: self.eps.at(clock.count),
            decay: rate * self.weight_decay.at(clock.count),
        }
    }

    fn tile<C: Real>(&self, state: &Self::State, run: &Self::Run, place: Place, span: Span, tile: &mut Tile<'_, C>) {
        if !span.has(place.at) {
            return;
        }
        let [b1, b2, b3] = run.betas;
        let job = OneStep {
            keep: run.betas.map(C::of),
            take: [(1.0 - b1) * run.rate, 1.0 - b2, (1.0 - b3) * run.rate].map(C::of),
            eps: C::of(run.eps),
            decay: C::of(run.decay),
        };
        slots_write([&state.exp_avg, &state.exp_avg_sq, &state.grad_sum], place.sum, tile, &job);
    }

    fn finish(&self, state: &mut Self::State, run: Self::Run, sums: Sums<'_>, _: &mut Outcome) {
        let [agreement, path] = [sums.total(0), sums.total(1)];
        let b3 = run.betas[2];
        let numerator = b3 * state.numerator_weighted.get() + (1.0 - b3) * run.rate * agreement;
        state.numerator_weighted.set(numerator);
        // Nothing has been learnt of the distance while all gradients were zero.
        if path != 0.0 {
            state.estim_lr.set(larger(state.estim_lr.get(), numerator / ((1.0 - b3) * path)));
        }
    }

    fn kernel<C: Real>(&self, _: &Self::State, _: &Self::Run, _: usize) {}

    fn state_bytes(&self, state: &Self::State, leaf: usize, at: usize, span: Span) -> usize {
        if span.has(at) { state.exp_avg.dtype(leaf).map_or(0, |dtype| 6 * dtype.size()) } else { 0 }
    }

    fn recipe(&self) -> crate::recipe::Recipe {
        crate::recipe::of_arguments(self)
    }

    fn describe(&self) -> String {
        "dadapt_adamw".into()
    }
}

struct OneStep<C> {
    keep: [C; 3],
    take: [C; 3],
    eps: C,
    decay: C,
}

impl<C: Real> SlotsWriter<C, 3> for OneStep<C> {
    #[inline(always)]
    fn write(&self, u: &mut [C], p: &[C], [m, v, s]: [&mut [C]; 3], sums: &mut [f64]) {
        let OneStep { keep, take, eps, decay } = *self;
        sums[0] += sum_triples(u, s, v, |u, s, v| u.as_f64() * (s / (v.sqrt() + eps)).as_f64());
        for ((((u, p), m), v), s) in u.iter_mut().zip(p).zip(m).zip(v).zip(&mut *s) {
            *m = keep[0] * *m + take[0] * *u;
            *v = keep[1] * *v + take[1] * (*u * *u);
            *s = keep[2] * *s + take[2] * *u;
            *u = -*m / (v.sqrt() + eps) - decay * *p;
        }
        sums[1] += sum_tile(s, |s| s.as_f64().abs());
    }
}
