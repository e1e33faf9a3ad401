use crate::internal::state::state_fields;
use crate::part::prelude::*;
use crate::select::Mask;
use crate::transform::moment::Mean;
use crate::transform::rescale::{factor_in, shrink};

/// Adam with update clipping: shortens the step of a leaf whose second moment lags behind its gradients.
///
/// The second moment is slow: if gradients grow suddenly, as they do in embeddings, it is too small for a while and
/// Adam's steps are too large. The excess is measured per leaf, and the leaf's step, weight decay included, is divided
/// by it.
///
/// # Arithmetic
///
/// At step `t`, counted from 1; the mean over the elements of a leaf is summed in `f64`:
///
/// ```text
/// m ← b1·m + (1 − b1)·u             first moment, starts at 0
/// v ← b2·v + (1 − b2)·u²            second moment, starts at 0
/// m̂ = m / (1 − b1ᵗ),   v̂ = v / (1 − b2ᵗ)
/// rms = √mean(u² / max(v̂, eps²))
/// u ← (m̂ / (√v̂ + eps) + weight_decay·p) / max(1, rms)
/// ```
///
/// # Cost
///
/// Two floats of state per parameter. One more pass, before which the updates are stored; reads parameters.
///
/// # Errors
///
/// `init` fails if `b1` or `b2` is not in `[0, 1)`, `eps` is not positive and finite, `weight_decay` is not finite, or
/// a pattern of the mask matches no leaf.
///
/// # Example
///
/// After gradients of 1 and 7 the second moment is `v̂ = (1/4 + 49/2) / (3/4) = 33`. Adam's step would be `7 / √33`,
/// more than 1; so is `rms`, and the quotient is 1:
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::scale_by_stable_adam;
///
/// let optimizer = scale_by_stable_adam().b1(0.0).b2(0.5).eps(1e-12);
/// let params = vec![0.0_f64];
/// let mut state = optimizer.init(&params)?;
/// optimizer.update(&vec![1.0_f64], &mut state, &params)?;
/// let updates = optimizer.update(&vec![7.0_f64], &mut state, &params)?;
/// approx::assert_relative_eq!(updates.to_vec::<f64>("").unwrap()[0], 1.0, max_relative = 1e-9);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Wortsman, Dettmers, Zettlemoyer, Morcos, Farhadi and Schmidt, [Stable and low-precision training for large-scale
/// vision-language models](https://arxiv.org/abs/2304.13013), 2023, algorithm 2. Optax has none. Differs: bias is
/// corrected when a moment is used, which is the same but for rounding.
pub fn scale_by_stable_adam() -> ScaleByStableAdam {
    ScaleByStableAdam::with()
}

part! {
    /// See [`scale_by_stable_adam`].
    pub ScaleByStableAdam as "scale_by_stable_adam": TwoPass;
    hyperparams {
        /// Decay of the first moment.
        b1: DECAY = 0.9;
        /// Decay of the second moment.
        b2: DECAY = 0.99;
        /// Added to the root, and its lower bound in `rms`.
        eps: POSITIVE = 1e-6;
        /// Multiple of the parameters added to the updates.
        weight_decay: FINITE = 0.0;
    }
    options {
        /// The leaves that decay.
        mask: Mask = Mask::all();
        /// Dtype of the first moment; by default the compute type.
        mu_dtype: Option<DType> = None;
        /// Dtype of the second moment; by default the compute type.
        nu_dtype: Option<DType> = None;
    }
    effect Self::effect_of;
}

impl ScaleByStableAdam {
    fn effect_of(&self) -> Effect {
        // A mask excludes leaves on purpose, so such a part claims no decay.
        if self.mask.is_all() { Effect::SCALE_INVARIANT.decays(&self.weight_decay) } else { Effect::SCALE_INVARIANT }
    }
}

/// The state of [`scale_by_stable_adam`], besides the arrays `mu` and `nu`, the first and second moments.
#[derive(Clone, Debug)]
pub struct ScaleByStableAdamState {
    /// Steps done.
    pub count: Count,
    /// As [`Steps::updates`](crate::part::Steps::updates).
    pub updates: PerLeaf<Count>,
    decays: Vec<bool>,
    factors: Vec<f64>,
}

state_fields!(ScaleByStableAdamState { count, updates } facts { decays });

impl ScaleByStableAdamState {
    /// Returns the factor of a leaf's step in the last step that this state saw; 1 before the first.
    pub fn factor(&self, leaf: usize) -> Option<f64> {
        self.factors.get(leaf).copied()
    }
}

/// The hyperparameters of one step.
#[derive(Clone, Copy, Debug)]
pub struct StableAdamRun {
    clock: Clock,
    betas: [f64; 2],
    eps: f64,
    weight_decay: f64,
}

/// The scalars of the passes over a leaf.
#[derive(Clone, Copy, Debug)]
pub struct StableAdamScalars<C> {
    mean1: Mean<C>,
    mean2: Mean<C>,
    unbias: [C; 2],
    eps: C,
    /// Lower bound of `v̂` in `rms`.
    least: C,
    weight_decay: C,
    /// Factor of the second pass.
    factor: C,
}

impl TwoPasses for ScaleByStableAdam {
    const SLOTS: &'static [Slot] = &[Slot::signed("mu"), Slot::not_negative("nu")];
    const PASSES: Passes = Passes::TWO.reads_params([true, false]).accesses(&[Access::Write; 2], &[]).transforms();
    type Memory = ScaleByStableAdamState;
    type Run = StableAdamRun;
    type Slots<C: Real> = [C; 2];
    type Sums<W: Real> = [W; 1];
    type Scalars<C: Real> = StableAdamScalars<C>;

    fn start(&self, at: &InitContext<'_>) -> Result<ScaleByStableAdamState> {
        Ok(ScaleByStableAdamState {
            count: Count::default(),
            updates: at.updates(),
            decays: self.mask.resolve(at.structure(), "mask of scale_by_stable_adam")?,
            factors: vec![1.0; at.structure().len()],
        })
    }

    fn begin(&self, memory: &mut ScaleByStableAdamState, at: &StepContext<'_>) -> StableAdamRun {
        let clock = Clock::begin(&mut memory.count, &mut memory.updates, at);
        let [b1, b2, eps, weight_decay] =
            Hyperparam::all_at([&self.b1, &self.b2, &self.eps, &self.weight_decay], clock.count);
        StableAdamRun { clock, betas: [b1, b2], eps, weight_decay }
    }

    fn scalars<C: Real>(
        &self,
        memory: &ScaleByStableAdamState,
        run: &StableAdamRun,
        leaf: usize,
    ) -> StableAdamScalars<C> {
        let clock = run.clock.of_leaf(&memory.updates, leaf);
        let [mean1, mean2] = run.betas.map(Mean::of);
        let weight_decay = if memory.decays[leaf] { run.weight_decay } else { 0.0 };
        StableAdamScalars {
            mean1,
            mean2,
            unbias: run.betas.map(|b| C::of(1.0 / clock.bias_correction(b))),
            eps: C::of(run.eps),
            least: C::of(run.eps * run.eps).max(C::min_positive_value()),
            weight_decay: C::of(weight_decay),
            factor: factor_in(memory.factors[leaf]),
        }
    }

    /// Sums the squares of gradients in units of their second moments.
    #[inline(always)]
    fn accumulate<C: Real>(k: StableAdamScalars<C>, [m, v]: &mut [C; 2], u: C, p: C) -> (C, [C::Wide; 1]) {
        *m = k.mean1.with(*m, u);
        *v = k.mean2.with(*v, u * u);
        let [mean, square] = [k.unbias[0] * *m, k.unbias[1] * *v];
        // The comparison lets NaN through.
        let measure = if square < k.least { k.least } else { square };
        (mean / (square.sqrt() + k.eps) + k.weight_decay * p, [(u * u / measure).wide()])
    }

    fn decide(&self, memory: &mut ScaleByStableAdamState, _: &mut StableAdamRun, sums: Sums<'_>) {
        for (leaf, factor) in memory.factors.iter_mut().enumerate() {
            *factor = shrink((sums.leaf(0, leaf) / sums.leaf_len(leaf) as f64).sqrt(), 1.0);
        }
    }

    #[inline(always)]
    fn emit<C: Real>(k: StableAdamScalars<C>, _: &mut [C; 2], u: C, _: C) -> C {
        u * k.factor
    }
}
