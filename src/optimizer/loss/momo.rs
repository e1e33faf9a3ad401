use crate::element::Real;
use crate::engine::{
    InitContext, SlotsJob, SlotsWriter, StepContext, Sums, Tile, slots_read, slots_write, sum_pairs, sum_tile,
};
use crate::error::Result;
use crate::macros::builder;
use crate::optimizer::measured::{Measured, larger, measured_stage, smaller};
use crate::schedule::Hyperparam;
use crate::state::{Count, Moments, Scalar};
use crate::wrapper::state_fields;

/// MoMo: gradient descent with momentum whose step size follows from the loss, as Polyak's does, and is at most the learning
/// rate.
///
/// A step needs the [value](crate::extra::value) of the loss. The running means of losses and gradients make a model of the
/// loss, a plane cut off at `lower_bound`; the step goes to where it is least, not farther than `learning_rate`.
///
/// # Arithmetic
///
/// With `β` = `beta`, but 0 in the first step, `α` the learning rate, `λ = 1 + α·weight_decay`, and sums over all leaves in
/// `f64`:
///
/// ```text
/// m ← β·m + (1 − β)·u
/// f ← β·f + (1 − β)·value
/// g ← β·g + (1 − β)·Σ u·p
/// τ = min(α, max(λ·(f − bound − g) + Σ m·p, 0) / Σ m²)      0 where Σ m² is not more than 2.2e-16
/// u ← −τ·m − (α·weight_decay / λ)·p
/// ```
///
/// The bound is `lower_bound`, or with `adapt_lower_bound` an estimate that starts there. With `h = f − g`, before the step
///
/// ```text
/// bound ← max((λ·h + Σ m·p) / (2·λ), lower_bound)           where λ·h + Σ m·p < λ·bound
/// ```
///
/// and after it `bound ← max(h + Σ m·p − τ·Σ m² / 2, lower_bound)`.
///
/// Defaults: `learning_rate` 1, `beta` 0.9, `lower_bound` 0, `weight_decay` 0, the bound not adapted.
///
/// # Cost
///
/// One float of state for each parameter. Two passes, between which nothing is stored.
///
/// # Errors
///
/// `init` fails if `beta` is not in `[0, 1)`, or another argument is not finite.
///
/// # Example
///
/// The first step for `p²/2` is Polyak's: half way to the minimum.
///
/// ```
/// use gradchain::extra;
/// use gradchain::prelude::*;
///
/// let optimizer = momo();
/// let mut params = 2.0_f64;
/// let mut state = optimizer.init(&params)?;
/// optimizer.step_with(&mut params, &2.0, extra::value(2.0), &mut state)?;
/// assert_eq!(params, 1.0);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Schaipp, Ohana, Eickenberg, Defazio and Gower, [MoMo: momentum models for adaptive learning
/// rates](https://arxiv.org/abs/2305.07583), 2023, algorithms 1 and 3. Optax,
/// [`contrib.momo`](https://optax.readthedocs.io/en/latest/api/contrib.html). Differs: none but `f64` sums.
pub fn momo() -> Momo {
    Momo {
        learning_rate: 1.0.into(),
        beta: 0.9.into(),
        lower_bound: 0.0.into(),
        weight_decay: 0.0.into(),
        adapt_lower_bound: false,
    }
}

/// See [`momo`](momo()).
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a transformation does nothing until it is given gradients"]
pub struct Momo {
    /// The largest step size.
    pub learning_rate: Hyperparam,
    /// Decay of the running means, in `[0, 1)`.
    pub beta: Hyperparam,
    /// What the loss is known not to be less than.
    pub lower_bound: Hyperparam,
    /// The decay of the weights for each unit of learning rate.
    pub weight_decay: Hyperparam,
    /// Whether a better bound is estimated.
    pub adapt_lower_bound: bool,
}

builder! {
    Momo as "momo" {
        hyperparams: learning_rate, beta, lower_bound, weight_decay;
        options: adapt_lower_bound: bool;
    }
}
measured_stage!(Momo; state MomoState; run MomoRun; needs crate::needs::Value);

/// What [`momo`](momo()) remembers.
#[derive(Clone, Debug)]
pub struct MomoState {
    /// Steps done.
    pub count: Count,
    /// The running mean of losses, `f`.
    pub barf: Scalar,
    /// The running mean of products of gradients and parameters, `g`.
    pub gamma: Scalar,
    /// The bound.
    pub lb: Scalar,
    /// The running mean of gradients, `m`.
    pub exp_avg: Moments,
}

state_fields!(MomoState<> { count, barf, gamma, lb, exp_avg });

/// What [`Momo`] works out once a step.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct MomoRun {
    beta: f64,
    value: f64,
    model: Model,
    tau: f64,
}

/// The model of the loss, and how far to go in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Model {
    /// The learning rate, `α`.
    pub(super) rate: f64,
    pub(super) weight_decay: f64,
    pub(super) lower_bound: f64,
    pub(super) adapts: bool,
    /// What means that started at zero are divided by.
    pub(super) unbias: f64,
}

impl Model {
    /// `λ`.
    fn damping(&self) -> f64 {
        1.0 + self.rate * self.weight_decay
    }

    /// What is subtracted from a parameter, for each unit of it.
    pub(super) fn decay(&self) -> f64 {
        self.rate * self.weight_decay / self.damping()
    }

    /// The step size, given where the plane is at 0 (`height`, the mean loss less the mean product), the product of its
    /// slope and the parameters, and the squared norm of the slope; improves the bound.
    pub(super) fn step(&self, bound: &mut Scalar, height: f64, product: f64, norm: f64) -> f64 {
        let Model { rate, lower_bound, unbias, .. } = *self;
        let damping = self.damping();
        let mut least = bound.get();
        let cap = damping * height + product;
        if self.adapts && cap < damping * unbias * least {
            least = larger(cap / (2.0 * unbias * damping), lower_bound);
        }
        let reach = larger(damping * (height - unbias * least) + product, 0.0) / norm;
        // Without a slope there is nowhere to go.
        let reach = if norm <= f64::EPSILON { 0.0 } else { reach };
        let tau = smaller(rate / unbias, reach);
        if self.adapts {
            bound.set(larger((height + product - 0.5 * tau * norm) / unbias, lower_bound));
        }
        tau
    }
}

impl Measured for Momo {
    const NAME: &'static str = "momo";
    const SUMS: usize = 3;
    type State = MomoState;
    type Run = MomoRun;

    fn check_arguments(&self) -> Result<()> {
        let name = <Self as Measured>::NAME;
        self.beta.validate(name, "beta", "in [0, 1)", |x| (0.0..1.0).contains(&x))?;
        for (argument, value) in [
            ("learning_rate", &self.learning_rate),
            ("lower_bound", &self.lower_bound),
            ("weight_decay", &self.weight_decay),
        ] {
            value.validate(name, argument, "finite", f64::is_finite)?;
        }
        Ok(())
    }

    fn first_state(&self, at: &InitContext<'_>) -> Result<MomoState> {
        Ok(MomoState {
            count: Count::default(),
            barf: Scalar::default(),
            gamma: Scalar::default(),
            lb: Scalar::new(self.lower_bound.at(0)),
            exp_avg: at.moments()?,
        })
    }

    fn start(&self, state: &mut MomoState, at: &StepContext<'_>) -> MomoRun {
        let count = state.count.get();
        state.count.increment();
        MomoRun {
            beta: if count == 0 { 0.0 } else { self.beta.at(count) },
            value: at.value().unwrap_or(f64::NAN),
            model: Model {
                rate: self.learning_rate.at(count),
                weight_decay: self.weight_decay.at(count),
                lower_bound: self.lower_bound.at(count),
                adapts: self.adapt_lower_bound,
                unbias: 1.0,
            },
            tau: 0.0,
        }
    }

    fn take_in<C: Real>(&self, state: &MomoState, run: &MomoRun, sums: usize, tile: &mut Tile<'_, C>) {
        slots_read([&state.exp_avg], sums, tile, &TakeIn([run.beta, 1.0 - run.beta].map(C::of)));
    }

    fn decide(&self, state: &mut MomoState, run: &mut MomoRun, sums: Sums<'_>) {
        let [dot, norm, product] = [0, 1, 2].map(|i| sums.total(i));
        let MomoRun { beta, value, .. } = *run;
        state.barf.set(beta * state.barf.get() + (1.0 - beta) * value);
        state.gamma.set(beta * state.gamma.get() + (1.0 - beta) * dot);
        run.tau = run.model.step(&mut state.lb, state.barf.get() - state.gamma.get(), product, norm);
    }

    fn give_out<C: Real>(&self, state: &MomoState, run: &MomoRun, tile: &mut Tile<'_, C>) {
        let job = GiveOut { tau: C::of(run.tau), decay: C::of(run.model.decay()) };
        slots_write([&state.exp_avg], 0, tile, &job);
    }

    fn bytes(state: &MomoState, leaf: usize) -> [usize; 2] {
        let size = state.exp_avg.dtype(leaf).map_or(0, |dtype| dtype.size());
        [2 * size, size]
    }
}

struct TakeIn<C>([C; 2]);

impl<C: Real> SlotsJob<C, 1> for TakeIn<C> {
    #[inline(always)]
    fn read(&self, u: &[C], p: &[C], [m]: [&mut [C]; 1], sums: &mut [f64]) {
        let [keep, take] = self.0;
        for (u, m) in u.iter().zip(&mut *m) {
            *m = keep * *m + take * *u;
        }
        sums[0] += sum_pairs(u, p, |u, p| u.as_f64() * p.as_f64());
        sums[1] += sum_tile(m, |m| m.as_f64() * m.as_f64());
        sums[2] += sum_pairs(m, p, |m, p| m.as_f64() * p.as_f64());
    }
}

struct GiveOut<C> {
    tau: C,
    decay: C,
}

impl<C: Real> SlotsWriter<C, 1> for GiveOut<C> {
    #[inline(always)]
    fn write(&self, u: &mut [C], p: &[C], [m]: [&mut [C]; 1], _: &mut [f64]) {
        for ((u, p), m) in u.iter_mut().zip(p).zip(m) {
            *u = -self.tau * *m - self.decay * *p;
        }
    }
}
