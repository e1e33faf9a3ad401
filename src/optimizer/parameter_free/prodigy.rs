use super::unbias;
use crate::internal::numeric::max_or_nan;
use crate::internal::state::state_fields;
use crate::part::prelude::*;
use crate::range::DECAY;

/// Prodigy: AdamW that estimates its learning rate from the distance to the initial parameters.
///
/// `d` is a lower bound of the distance between the initial parameters and the solution, and never decreases. The
/// learning rate is `d · learning_rate`, so a schedule for `learning_rate` has a peak of 1.
///
/// # Arithmetic
///
/// At step `t`, counted from 1, with `p₀` the initial parameters, `b1, b2 = betas`, `b3` = `beta3` or `√b2`, and
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
/// Defaults: `learning_rate` 1, `betas` (0.9, 0.999), `eps` 1e-8, `estim_lr0` 1e-6, `estim_lr_coef` 1, `weight_decay`
/// 0, no safeguard.
///
/// # Cost
///
/// Four floats of state per parameter. Two passes, between which nothing is stored.
///
/// # Errors
///
/// `init` fails if a beta is not in `[0, 1)`, `eps` is negative or not finite, `estim_lr0` is not positive and finite,
/// or `estim_lr_coef` or `weight_decay` is not finite.
///
/// # Example
///
/// It converges to the minimum of `(p − 3)²/2` although the initial estimate is much too small:
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
/// Mishchenko and Defazio, [Prodigy: an expeditiously adaptive parameter-free
/// learner](https://arxiv.org/abs/2306.06101), 2023, algorithm 4. Optax,
/// [`contrib.prodigy`](https://optax.readthedocs.io/en/latest/api/contrib.html). Differs: while all gradients are zero
/// the estimate stays, where Optax divides 0 by 0 and stays NaN.
pub fn prodigy() -> Prodigy {
    Prodigy::with()
}

part! {
    /// See [`prodigy`](prodigy()).
    pub Prodigy as "prodigy": TwoPass;
    hyperparams {
        /// Factor of the estimate.
        learning_rate: FINITE = 1.0;
        /// Added to the root, in units of the estimate.
        eps: NOT_NEGATIVE = 1e-8;
        /// The first estimate; better too small than too large.
        estim_lr0: POSITIVE = 1e-6;
        /// Factor of new estimates.
        estim_lr_coef: FINITE = 1.0;
        /// The decoupled weight decay, multiplied by the learning rate.
        weight_decay: FINITE = 0.0;
    }
    options {
        /// Decays of the first and second moment, in `[0, 1)`.
        betas: (f64, f64) = (0.9, 0.999);
        /// If true, the estimate excludes the learning rate, as a warm-up requires.
        safeguard_warmup: bool = false;
    }
    optional {
        /// Decay of the sums behind the estimate; by default the root of the second of `betas`.
        beta3: DECAY;
    }
    check Self::check_betas;
    effect Self::effect_of;
}

impl Prodigy {
    fn effect_of(&self) -> Effect {
        Effect::STEP.at_rate(&self.learning_rate).decays(&self.weight_decay)
    }
}

/// The state of [`prodigy`](prodigy()) besides its arrays.
///
/// These are `exp_avg` and `exp_avg_sq`, the first and second moments, `grad_sum`, the running sum `s` of gradients,
/// and `params0`, the initial parameters.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ProdigyState {
    /// Steps done.
    pub count: Count,
    /// As [`Steps::updates`](crate::part::Steps::updates).
    pub updates: PerLeaf<Count>,
    /// The estimate of the distance to the solution, used as the learning rate.
    pub estim_lr: Scalar,
    /// The running sum `n`.
    pub numerator_weighted: Scalar,
}

state_fields!(ProdigyState { count, updates, estim_lr, numerator_weighted });

/// Scalars of [`Prodigy`], computed once per step.
#[derive(Clone, Copy, Debug)]
pub struct ProdigyRun {
    clock: Clock,
    betas: [f64; 3],
    /// Before and after this step.
    estimates: [f64; 2],
    /// The learning rate before bias correction, and after it for a leaf updated in every step.
    uncorrected: f64,
    rate: f64,
    /// Weight of the gradient in `s`.
    gradient_weight: f64,
    start: f64,
}

impl Prodigy {
    fn check_betas(&self) -> Result<()> {
        match [self.betas.0, self.betas.1].into_iter().find(|beta| !(DECAY.contains)(*beta)) {
            Some(beta) => Err(Error::argument(Self::NAME, "betas", DECAY.text, beta)),
            None => Ok(()),
        }
    }
}

impl TwoPasses for Prodigy {
    const SLOTS: &'static [Slot] = &[
        Slot::signed("exp_avg"),
        Slot::not_negative("exp_avg_sq"),
        Slot::signed("grad_sum"),
        Slot::exact("params0").starts_as_params(),
    ];
    const PASSES: Passes = Passes::TWO
        .reads_params([true; 2])
        .accesses(&[Access::Write, Access::Write, Access::Write, Access::Read], &[Access::Read; 2]);
    type Memory = ProdigyState;
    type Run = ProdigyRun;
    type Slots<C: Real> = [C; 4];
    type Sums<W: Real> = [W; 2];
    /// The weights of the running means, the gradient and its square; the rate, `eps` and the weight decay.
    type Scalars<C: Real> = ([[C; 3]; 2], [C; 3]);

    fn start(&self, at: &InitContext<'_>) -> Result<ProdigyState> {
        Ok(ProdigyState {
            count: Count::default(),
            updates: at.updates(),
            estim_lr: Scalar::new(self.estim_lr0.at(0)),
            numerator_weighted: Scalar::default(),
        })
    }

    fn begin(&self, memory: &mut ProdigyState, at: &StepContext<'_>) -> ProdigyRun {
        let clock = Clock::begin(&mut memory.count, &mut memory.updates, at);
        let (b1, b2) = self.betas;
        let (estimate, start) = (memory.estim_lr.get(), self.estim_lr0.at(clock.count));
        let uncorrected = estimate * self.learning_rate.at(clock.count);
        let rate = uncorrected * unbias(clock, self.betas);
        ProdigyRun {
            clock,
            betas: [b1, b2, self.beta3.as_ref().map_or(b2.sqrt(), |beta3| beta3.at(clock.count))],
            estimates: [estimate; 2],
            uncorrected,
            rate,
            gradient_weight: if self.safeguard_warmup { estimate } else { rate } * estimate / start,
            start,
        }
    }

    fn scalars<C: Real>(&self, memory: &ProdigyState, run: &ProdigyRun, leaf: usize) -> ([[C; 3]; 2], [C; 3]) {
        let ([b1, b2, b3], [d, next]) = (run.betas, run.estimates);
        let means = [[b1, b2, b3], [(1.0 - b1) * d, (1.0 - b2) * d * d, run.gradient_weight]];
        let [eps, decay] = Hyperparam::all_at([&self.eps, &self.weight_decay], run.clock.count);
        let rate = run.uncorrected * unbias(run.clock.of_leaf(&memory.updates, leaf), self.betas);
        (means.map(|three| three.map(C::of)), [rate, next * eps, rate * decay].map(C::of))
    }

    #[inline(always)]
    fn accumulate<C: Real>(
        ([keep, take], _): Self::Scalars<C>,
        [m, v, s, p0]: &mut [C; 4],
        u: C,
        p: C,
    ) -> (C, [C::Wide; 2]) {
        *m = keep[0] * *m + take[0] * u;
        *v = keep[1] * *v + take[1] * (u * u);
        *s = keep[2] * *s + take[2] * u;
        (u, [u.wide() * (p0.wide() - p.wide()), s.abs().wide()])
    }

    fn decide(&self, memory: &mut ProdigyState, run: &mut ProdigyRun, sums: Sums<'_>) {
        let [progress, path] = [sums.total(0), sums.total(1)];
        let [d, _] = run.estimates;
        let numerator = run.betas[2] * memory.numerator_weighted.get() + d / run.start * run.rate * progress;
        memory.numerator_weighted.set(numerator);
        // Zero gradients carry no information about the distance.
        if path != 0.0 {
            run.estimates[1] = max_or_nan(d, self.estim_lr_coef.at(run.clock.count) * numerator / path);
        }
        memory.estim_lr.set(run.estimates[1]);
    }

    #[inline(always)]
    fn emit<C: Real>((_, [rate, eps, decay]): Self::Scalars<C>, [m, v, ..]: &mut [C; 4], _: C, p: C) -> C {
        -rate * *m / (v.sqrt() + eps) - decay * p
    }
}
