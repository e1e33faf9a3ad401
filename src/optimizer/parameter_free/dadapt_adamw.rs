use super::unbias;
use crate::internal::numeric::max_or_nan;
use crate::internal::state::state_fields;
use crate::part::prelude::*;
use crate::range::DECAY;

/// D-Adapted AdamW: estimates its learning rate from the correlation of successive gradients.
///
/// `d` is a lower bound of the distance between the initial parameters and the solution, and never decreases. The
/// learning rate is `d · learning_rate`, so a schedule for `learning_rate` has a peak of 1.
///
/// # Arithmetic
///
/// At step `t`, counted from 1, with `b1, b2 = betas`, `b3 = √b2` and `lr = d · learning_rate · √(1 − b2ᵗ) / (1 −
/// b1ᵗ)`:
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
/// Three floats of state per parameter; one pass.
///
/// # Errors
///
/// `init` fails if a beta is not in `[0, 1)`, `eps` is negative or not finite, `estim_lr0` is not positive and finite,
/// or `weight_decay` is not finite.
///
/// # Example
///
/// It converges to the minimum of `(p − 3)²/2` although the initial estimate is much too small:
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::optimizer::dadapt_adamw;
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
/// Defazio and Mishchenko, [Learning-rate-free learning by D-adaptation](https://arxiv.org/abs/2301.07733), 2023,
/// algorithm 5. Optax, [`contrib.dadapt_adamw`](https://optax.readthedocs.io/en/latest/api/contrib.html). Differs:
/// while all gradients are zero the estimate stays, where Optax divides 0 by 0 and stays NaN.
pub fn dadapt_adamw() -> DadaptAdamw {
    DadaptAdamw::with()
}

part! {
    /// See [`dadapt_adamw`](dadapt_adamw()).
    pub DadaptAdamw as "dadapt_adamw": TwoPass;
    hyperparams {
        /// Factor of the estimate.
        learning_rate: FINITE = 1.0;
        /// Added to roots.
        eps: NOT_NEGATIVE = 1e-8;
        /// The first estimate; better too small than too large.
        estim_lr0: POSITIVE = 1e-6;
        /// The decoupled weight decay, multiplied by the learning rate.
        weight_decay: FINITE = 0.0;
    }
    options {
        /// Decays of the first and second moment, in `[0, 1)`.
        betas: (f64, f64) = (0.9, 0.999);
    }
    check Self::check_betas;
    effect Self::effect_of;
}

impl DadaptAdamw {
    fn effect_of(&self) -> Effect {
        Effect::STEP.at_rate(&self.learning_rate).decays(&self.weight_decay)
    }
}

/// The state of [`dadapt_adamw`](dadapt_adamw()) besides its arrays.
///
/// These are `exp_avg`, the first moments multiplied by the learning rate, `exp_avg_sq`, the second moments, and
/// `grad_sum`, the running sum `s` of gradients.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DadaptAdamwState {
    /// Steps done.
    pub count: Count,
    /// As [`Steps::updates`](crate::part::Steps::updates).
    pub updates: PerLeaf<Count>,
    /// The estimate of the distance to the solution, used as the learning rate.
    pub estim_lr: Scalar,
    /// The running sum `n`.
    pub numerator_weighted: Scalar,
}

state_fields!(DadaptAdamwState { count, updates, estim_lr, numerator_weighted });

/// Scalars of [`DadaptAdamw`], computed once per step.
#[derive(Clone, Copy, Debug)]
pub struct DadaptAdamwRun {
    clock: Clock,
    betas: [f64; 3],
    /// The learning rate before bias correction, and after it for a leaf updated in every step.
    uncorrected: f64,
    rate: f64,
    eps: f64,
    decay: f64,
}

impl DadaptAdamw {
    fn check_betas(&self) -> Result<()> {
        match [self.betas.0, self.betas.1].into_iter().find(|beta| !(DECAY.contains)(*beta)) {
            Some(beta) => Err(Error::argument(Self::NAME, "betas", DECAY.text, beta)),
            None => Ok(()),
        }
    }
}

/// The estimate serves the next step, so one pass is enough.
impl TwoPasses for DadaptAdamw {
    const SLOTS: &'static [Slot] =
        &[Slot::signed("exp_avg"), Slot::not_negative("exp_avg_sq"), Slot::signed("grad_sum")];
    const PASSES: Passes = Passes::ONE.reads_params([true, false]).accesses(&[Access::Write; 3], &[]);
    type Memory = DadaptAdamwState;
    type Run = DadaptAdamwRun;
    type Slots<C: Real> = [C; 3];
    type Sums<W: Real> = [W; 2];
    /// The weights of the running means, the gradient and its square; `eps` and the weight decay.
    type Scalars<C: Real> = ([[C; 3]; 2], [C; 2]);

    fn start(&self, at: &InitContext<'_>) -> Result<DadaptAdamwState> {
        Ok(DadaptAdamwState {
            count: Count::default(),
            updates: at.updates(),
            estim_lr: Scalar::new(self.estim_lr0.at(0)),
            numerator_weighted: Scalar::default(),
        })
    }

    fn begin(&self, memory: &mut DadaptAdamwState, at: &StepContext<'_>) -> DadaptAdamwRun {
        let clock = Clock::begin(&mut memory.count, &mut memory.updates, at);
        let (b1, b2) = self.betas;
        let uncorrected = memory.estim_lr.get() * self.learning_rate.at(clock.count);
        DadaptAdamwRun {
            betas: [b1, b2, b2.sqrt()],
            clock,
            uncorrected,
            rate: uncorrected * unbias(clock, self.betas),
            eps: self.eps.at(clock.count),
            decay: self.weight_decay.at(clock.count),
        }
    }

    fn scalars<C: Real>(&self, memory: &DadaptAdamwState, run: &DadaptAdamwRun, leaf: usize) -> ([[C; 3]; 2], [C; 2]) {
        let [b1, b2, b3] = run.betas;
        let rate = run.uncorrected * unbias(run.clock.of_leaf(&memory.updates, leaf), self.betas);
        let means = [[b1, b2, b3], [(1.0 - b1) * rate, 1.0 - b2, (1.0 - b3) * rate]];
        (means.map(|three| three.map(C::of)), [run.eps, rate * run.decay].map(C::of))
    }

    #[inline(always)]
    fn accumulate<C: Real>(k: Self::Scalars<C>, [m, v, s]: &mut [C; 3], u: C, p: C) -> (C, [C::Wide; 2]) {
        let ([keep, take], [eps, decay]) = k;
        let agreement = u.wide() * (*s / (v.sqrt() + eps)).wide();
        *m = keep[0] * *m + take[0] * u;
        *v = keep[1] * *v + take[1] * (u * u);
        *s = keep[2] * *s + take[2] * u;
        (-*m / (v.sqrt() + eps) - decay * p, [agreement, s.abs().wide()])
    }

    fn decide(&self, memory: &mut DadaptAdamwState, run: &mut DadaptAdamwRun, sums: Sums<'_>) {
        let [agreement, path] = [sums.total(0), sums.total(1)];
        let b3 = run.betas[2];
        let numerator = b3 * memory.numerator_weighted.get() + (1.0 - b3) * run.rate * agreement;
        memory.numerator_weighted.set(numerator);
        // Zero gradients say nothing on the distance.
        if path != 0.0 {
            memory.estim_lr.set(max_or_nan(memory.estim_lr.get(), numerator / ((1.0 - b3) * path)));
        }
    }

    #[inline(always)]
    fn emit<C: Real>(_: Self::Scalars<C>, _: &mut [C; 3], u: C, _: C) -> C {
        u
    }
}
