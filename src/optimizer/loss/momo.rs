use crate::internal::numeric::{max_or_nan, min_or_nan};
use crate::internal::state::state_fields;
use crate::needs::Value;
use crate::part::prelude::*;

/// MoMo: SGD with momentum and a Polyak step size from the loss, at most the learning rate.
///
/// A step needs the [value](crate::extra::value) of the loss. The running means of losses and gradients form a model of
/// the loss, a plane cut off at `lower_bound`; the step minimizes it, no farther than `learning_rate`.
///
/// Needs the feature `contrib`.
///
/// # Arithmetic
///
/// With `β` = `beta`, but 0 in the first step, `α` the learning rate, `λ = 1 + α·weight_decay`, and sums over all
/// leaves in `f64`:
///
/// ```text
/// m ← β·m + (1 − β)·u
/// f ← β·f + (1 − β)·value
/// g ← β·g + (1 − β)·Σ u·p
/// τ = min(α, max(λ·(f − bound − g) + Σ m·p, 0) / Σ m²)      0 where Σ m² is not more than 2.2e-16
/// u ← −τ·m − (α·weight_decay / λ)·p
/// ```
///
/// The bound is `lower_bound`, or with `adapt_lower_bound` an estimate that starts there. With `h = f − g`, before the
/// step
///
/// ```text
/// bound ← max((λ·h + Σ m·p) / (2·λ), lower_bound)           where λ·h + Σ m·p < λ·bound
/// ```
///
/// and after it `bound ← max(h + Σ m·p − τ·Σ m² / 2, lower_bound)`.
///
/// `m` and `g` are per leaf: both wait while the leaf is frozen or lacks a gradient, `g` is summed over the leaves of
/// the step, and `β` is 0 in a leaf's own first step. `f` covers all steps.
///
/// Defaults: `learning_rate` 1, `beta` 0.9, `lower_bound` 0, `weight_decay` 0, the bound not adapted.
///
/// # Cost
///
/// One float of state per parameter. Two passes, between which nothing is stored.
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
/// use gradchain::optimizer::momo;
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
    Momo::with()
}

part! {
    /// See [`momo`](momo()).
    pub Momo as "momo": TwoPass<Value>;
    hyperparams {
        /// The largest step size.
        learning_rate: FINITE = 1.0;
        /// Decay of the running means.
        beta: DECAY = 0.9;
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

impl Momo {
    fn effect_of(&self) -> Effect {
        Effect::REVERSED.at_rate(&self.learning_rate).decays(&self.weight_decay)
    }
}

/// The state of [`momo`](momo()) and of [`momo_adam`](crate::optimizer::momo_adam()), besides their arrays.
///
/// The former's array is `exp_avg`, the running mean of gradients `m`; the latter's are `exp_avg` and `exp_avg_sq`, the
/// first and second moments.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MomoState {
    /// Steps done.
    pub count: Count,
    /// The running mean of losses, `f`.
    pub barf: Scalar,
    /// As [`Steps::updates`](crate::part::Steps::updates).
    pub updates: PerLeaf<Count>,
    /// Each leaf's running mean of products of gradients and parameters; their sum over all leaves is `g`.
    pub gamma: PerLeaf<Scalar>,
    /// The bound.
    pub lb: Scalar,
}

state_fields!(MomoState { count, updates, barf, gamma, lb });

impl MomoState {
    pub(super) fn start(at: &InitContext<'_>, lower_bound: &Hyperparam) -> MomoState {
        MomoState {
            count: Count::default(),
            updates: at.updates(),
            barf: Scalar::default(),
            gamma: PerLeaf::new(at.active(), Scalar::default()),
            lb: Scalar::new(lower_bound.at(0)),
        }
    }
}

/// Scalars of [`Momo`], computed once per step.
#[derive(Clone, Copy, Debug)]
pub struct MomoRun {
    clock: Clock,
    beta: f64,
    value: f64,
    model: Model,
    tau: f64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Model {
    /// The learning rate, `α`.
    pub(super) rate: f64,
    pub(super) weight_decay: f64,
    pub(super) lower_bound: f64,
    pub(super) adapts: bool,
    /// Divisor of means that start at zero.
    pub(super) unbias: f64,
}

impl Model {
    /// Returns `λ`.
    fn damping(&self) -> f64 {
        1.0 + self.rate * self.weight_decay
    }

    /// Returns the subtracted fraction of a parameter.
    pub(super) fn decay(&self) -> f64 {
        self.rate * self.weight_decay / self.damping()
    }

    /// Returns the step size, and improves the bound.
    ///
    /// `height` is the plane's value at 0, the mean loss minus the mean product; `product` that of its slope and the
    /// parameters; `norm` the squared norm of the slope.
    pub(super) fn step(&self, bound: &mut Scalar, height: f64, product: f64, norm: f64) -> f64 {
        let Model { rate, lower_bound, unbias, .. } = *self;
        let damping = self.damping();
        let mut least = bound.get();
        let cap = damping * height + product;
        if self.adapts && cap < damping * unbias * least {
            least = max_or_nan(cap / (2.0 * unbias * damping), lower_bound);
        }
        let reach = max_or_nan(damping * (height - unbias * least) + product, 0.0) / norm;
        // Without a slope no step decreases the model.
        let reach = if norm <= f64::EPSILON { 0.0 } else { reach };
        let tau = min_or_nan(rate / unbias, reach);
        if self.adapts {
            bound.set(max_or_nan((height + product - 0.5 * tau * norm) / unbias, lower_bound));
        }
        tau
    }
}

impl MomoRun {
    /// Returns `β` of a leaf, whose means start at its first gradient.
    fn beta(&self, updates: &PerLeaf<Count>, leaf: usize) -> f64 {
        if self.clock.of_leaf(updates, leaf).updates == 0 { 0.0 } else { self.beta }
    }
}

/// Returns the mean product of gradients and parameters over this step's leaves.
///
/// `keep` returns the kept fraction of a leaf's mean. A resting leaf keeps this mean and that of its gradients, because
/// the plane depends on both.
pub(super) fn mean_product(gamma: &mut PerLeaf<Scalar>, sums: Sums<'_>, keep: impl Fn(usize) -> f64) -> f64 {
    let moved = gamma.iter_mut().filter(|(leaf, _)| !sums.rests(*leaf)).map(|(leaf, mean)| {
        let keep = keep(leaf);
        mean.set(keep * mean.get() + (1.0 - keep) * sums.leaf(0, leaf));
        mean.get()
    });
    moved.sum()
}

impl TwoPasses for Momo {
    const SLOTS: &'static [Slot] = &[Slot::signed("exp_avg")];
    const PASSES: Passes = Passes::TWO.reads_params([true; 2]).accesses(&[Access::Write], &[Access::Read]);
    type Memory = MomoState;
    type Run = MomoRun;
    type Slots<C: Real> = [C; 1];
    type Sums<W: Real> = [W; 3];
    /// The weights of the mean and the gradient; `τ` and the weight decay.
    type Scalars<C: Real> = [[C; 2]; 2];

    fn start(&self, at: &InitContext<'_>) -> Result<MomoState> {
        Ok(MomoState::start(at, &self.lower_bound))
    }

    fn begin(&self, memory: &mut MomoState, at: &StepContext<'_>) -> MomoRun {
        let clock = Clock::begin(&mut memory.count, &mut memory.updates, at);
        let count = clock.count;
        MomoRun {
            clock,
            beta: self.beta.at(count),
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

    fn scalars<C: Real>(&self, memory: &MomoState, run: &MomoRun, leaf: usize) -> [[C; 2]; 2] {
        let beta = run.beta(&memory.updates, leaf);
        [[beta, 1.0 - beta], [run.tau, run.model.decay()]].map(|pair| pair.map(C::of))
    }

    #[inline(always)]
    fn accumulate<C: Real>([[keep, take], _]: [[C; 2]; 2], [m]: &mut [C; 1], u: C, p: C) -> (C, [C::Wide; 3]) {
        *m = keep * *m + take * u;
        (u, [u.wide() * p.wide(), m.wide() * m.wide(), m.wide() * p.wide()])
    }

    fn decide(&self, memory: &mut MomoState, run: &mut MomoRun, sums: Sums<'_>) {
        let [norm, product] = [1, 2].map(|i| sums.total(i));
        let MomoState { updates, barf, gamma, lb, .. } = memory;
        let beta = if run.clock.count == 0 { 0.0 } else { run.beta };
        barf.set(beta * barf.get() + (1.0 - beta) * run.value);
        let gamma = mean_product(gamma, sums, |leaf| run.beta(updates, leaf));
        run.tau = run.model.step(lb, barf.get() - gamma, product, norm);
    }

    #[inline(always)]
    fn emit<C: Real>([_, [tau, decay]]: [[C; 2]; 2], [m]: &mut [C; 1], _: C, p: C) -> C {
        -tau * *m - decay * p
    }
}
