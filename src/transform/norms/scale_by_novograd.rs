use crate::internal::state::state_fields;
use crate::part::prelude::*;
use crate::transform::rescale::factor_in;

/// Divides the updates of each leaf by their running norm, adds weight decay, and applies momentum.
///
/// # Arithmetic
///
/// For each leaf, at step `t`, counted from 1, with the squared norm summed in `f64`:
///
/// ```text
/// v ← ‖u‖²                                if t = 1
/// v ← b2·v + (1 − b2)·‖u‖²                else
/// m ← b1·m + u / (√(v + eps_root) + eps) + weight_decay·p
/// u ← m
/// ```
///
/// With an `eps` of 0 the quotient is 0 until a leaf has had a nonzero gradient.
///
/// # Cost
///
/// One float of state per parameter, one number per leaf. One more pass, which reads gradients and writes nothing.
/// Fuses; reads parameters.
///
/// # Errors
///
/// `init` fails if `b1` or `b2` is not in `[0, 1)`, `eps` or `eps_root` is negative or not finite, or `weight_decay` is
/// not finite.
///
/// # Example
///
/// The first update is the gradient divided by its norm:
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::scale_by_novograd;
///
/// let optimizer = scale_by_novograd().eps(0.0);
/// let mut params = vec![0.0_f64, 0.0];
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &vec![6.0_f64, -8.0], &mut state)?;
/// approx::assert_relative_eq!(&params[..], &[0.6, -0.8][..], max_relative = 1e-15);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Ginsburg and others, [Stochastic gradient methods with layer-wise adaptive moments for training of deep
/// networks](https://arxiv.org/abs/1905.11286), 2019, algorithm 1. Optax,
/// [`scale_by_novograd`](https://optax.readthedocs.io/en/latest/api/transformations.html). Differs: the squared norm is
/// summed and kept in `f64`; the sum of a 16-bit leaf is `f32` unless `mu_dtype` is set.
pub fn scale_by_novograd() -> ScaleByNovograd {
    ScaleByNovograd::with()
}

part! {
    /// See [`scale_by_novograd`].
    pub ScaleByNovograd as "scale_by_novograd": TwoPass;
    hyperparams {
        /// Fraction of the sum kept.
        b1: DECAY = 0.9;
        /// Decay of the squared norm.
        b2: DECAY = 0.25;
        /// Added to the root.
        eps: NOT_NEGATIVE = 1e-8;
        /// Added under the root.
        eps_root: NOT_NEGATIVE = 0.0;
        /// Multiple of the parameters added to the sum.
        weight_decay: FINITE = 0.0;
    }
    options {
        /// Dtype of the sum; by default the compute type.
        mu_dtype: Option<DType> = None;
    }
    effect Self::effect_of;
}

impl ScaleByNovograd {
    fn effect_of(&self) -> Effect {
        Effect::SCALE_INVARIANT.decays(&self.weight_decay)
    }
}

/// The state of [`scale_by_novograd`], besides the array `mu`, the decaying sum.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ScaleByNovogradState {
    /// Steps done.
    pub count: Count,
    /// As [`Steps::updates`](crate::part::Steps::updates).
    pub updates: PerLeaf<Count>,
    /// The running mean of each leaf's squared norm.
    pub nu: PerLeaf<Scalar>,
}

state_fields!(ScaleByNovogradState { count, updates, nu });

/// The hyperparameters of one step.
#[derive(Clone, Copy, Debug)]
pub struct NovogradRun {
    clock: Clock,
    b1: f64,
    b2: f64,
    eps: f64,
    eps_root: f64,
    weight_decay: f64,
}

impl TwoPasses for ScaleByNovograd {
    const SLOTS: &'static [Slot] = &[Slot::signed("mu")];
    const PASSES: Passes = Passes::TWO.reads_params([false, true]).accesses(&[], &[Access::Write]);
    type Memory = ScaleByNovogradState;
    type Run = NovogradRun;
    type Slots<C: Real> = [C; 1];
    type Sums<W: Real> = [W; 1];
    /// The kept fraction of the sum, the factor of the gradients, and the weight decay.
    type Scalars<C: Real> = [C; 3];

    fn start(&self, at: &InitContext<'_>) -> Result<ScaleByNovogradState> {
        Ok(ScaleByNovogradState {
            count: Count::default(),
            updates: at.updates(),
            nu: PerLeaf::new(at.active(), Scalar::default()),
        })
    }

    fn begin(&self, memory: &mut ScaleByNovogradState, at: &StepContext<'_>) -> NovogradRun {
        let clock = Clock::begin(&mut memory.count, &mut memory.updates, at);
        let [b1, b2, eps, eps_root, weight_decay] =
            Hyperparam::all_at([&self.b1, &self.b2, &self.eps, &self.eps_root, &self.weight_decay], clock.count);
        NovogradRun { clock, b1, b2, eps, eps_root, weight_decay }
    }

    #[inline(always)]
    fn accumulate<C: Real>(_: [C; 3], _: &mut [C; 1], u: C, _: C) -> (C, [C::Wide; 1]) {
        (u, [u.wide() * u.wide()])
    }

    fn decide(&self, memory: &mut ScaleByNovogradState, run: &mut NovogradRun, sums: Sums<'_>) {
        let ScaleByNovogradState { updates, nu, .. } = memory;
        for (leaf, nu) in nu.iter_mut().filter(|(leaf, _)| !sums.rests(*leaf)) {
            // The first norm replaces the initial value.
            let first = run.clock.of_leaf(updates, leaf).updates == 0;
            let keep = if first { 0.0 } else { run.b2 };
            let kept = if first { 0.0 } else { keep * nu.get() };
            nu.set(kept + (1.0 - keep) * sums.leaf(0, leaf));
        }
    }

    #[inline]
    fn scalars<C: Real>(&self, memory: &ScaleByNovogradState, run: &NovogradRun, leaf: usize) -> [C; 3] {
        let root = (memory.nu.get(leaf).unwrap_or_default().get() + run.eps_root).sqrt() + run.eps;
        let factor = factor_in(if root == 0.0 { 0.0 } else { 1.0 / root });
        [C::of(run.b1), factor, C::of(run.weight_decay)]
    }

    #[inline(always)]
    fn emit<C: Real>([keep, factor, weight_decay]: [C; 3], [sum]: &mut [C; 1], u: C, p: C) -> C {
        *sum = keep * *sum + (u * factor + weight_decay * p);
        *sum
    }
}
