use crate::element::{DType, Real};
use crate::engine::{
    Clock, InitContext, Place, Shape, SlotsWriter, Span, Stage, StepContext, Sums, Tile, WholeTree, slots_write,
};
use crate::error::Result;
use crate::macros::builder;
use crate::schedule::Hyperparam;
use crate::select::Mask;
use crate::state::{Count, Moments};
use crate::transform::moment::{Mean, check_decays, check_finite};
use crate::transform::rescale::{factor_in, shrink};
use crate::wrapper::{Arguments, state_fields};

/// Scales updates as Adam does, and makes the step of a leaf smaller where its second moment is behind the gradients.
///
/// The second moment is slow: when gradients grow all at once, as they do in embeddings, it is too small for a while and
/// Adam's steps are too large. How much too large is measured for each leaf, and its step, decay of weights included, divided
/// by that.
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
/// Two floats of state for each parameter. One more pass, before which the updates are stored; reads parameters.
///
/// # Errors
///
/// `init` fails if `b1` or `b2` is not in `[0, 1)`, `eps` is not positive and finite, `weight_decay` is not finite, or a
/// pattern of the mask matches no leaf.
///
/// # Example
///
/// After a gradient of 1 comes one of 7, and the second moment is `v̂ = (1/4 + 49/2) / (3/4) = 33`. Adam's step would be
/// `7 / √33`, more than 1, and so is the measure:
///
/// ```
/// use gradchain::prelude::*;
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
/// vision-language models](https://arxiv.org/abs/2304.13013), 2023, algorithm 2. Optax has none. Differs: bias is corrected
/// when a moment is used, which is the same but for rounding.
pub fn scale_by_stable_adam() -> ScaleByStableAdam {
    ScaleByStableAdam {
        b1: 0.9.into(),
        b2: 0.99.into(),
        eps: 1e-6.into(),
        weight_decay: 0.0.into(),
        mask: Mask::all(),
        mu_dtype: None,
        nu_dtype: None,
    }
}

/// See [`scale_by_stable_adam`].
#[derive(Clone, Debug)]
#[must_use = "a transformation does nothing until it is given gradients"]
pub struct ScaleByStableAdam {
    /// Decay of the first moment, in `[0, 1)`.
    pub b1: Hyperparam,
    /// Decay of the second moment, in `[0, 1)`.
    pub b2: Hyperparam,
    /// Added to the root, and the least root in the measure; positive.
    pub eps: Hyperparam,
    /// How much of the parameters is added to the updates.
    pub weight_decay: Hyperparam,
    /// Which leaves decay.
    pub mask: Mask,
    /// Type of the first moment; by default the one that arithmetic is done in.
    pub mu_dtype: Option<DType>,
    /// Type of the second moment; by default the one that arithmetic is done in.
    pub nu_dtype: Option<DType>,
}

builder! {
    ScaleByStableAdam as "scale_by_stable_adam" {
        hyperparams: b1, b2, eps, weight_decay;
        options: mask: Mask, mu_dtype: Option<DType>, nu_dtype: Option<DType>;
    }
}

/// What [`scale_by_stable_adam`] remembers.
#[derive(Clone, Debug)]
pub struct ScaleByStableAdamState {
    /// Steps done.
    pub count: Count,
    /// First moments.
    pub mu: Moments,
    /// Second moments.
    pub nu: Moments,
    decays: Vec<bool>,
    factors: Vec<f64>,
}

state_fields!(ScaleByStableAdamState<> { count, mu, nu });

impl ScaleByStableAdamState {
    /// What a leaf's step was multiplied by in the last step that this state saw; 1 before the first.
    pub fn factor(&self, leaf: usize) -> Option<f64> {
        self.factors.get(leaf).copied()
    }
}

/// The hyperparameters of one step.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct StableAdamRun {
    b1: f64,
    b2: f64,
    unbias: [f64; 2],
    eps: f64,
    weight_decay: f64,
}

impl Stage for ScaleByStableAdam {
    type Needs = crate::needs::Nothing;
    type State = ScaleByStableAdamState;
    type Run = StableAdamRun;
    type Kernel<C: Real> = ();

    const SHAPE: Shape = Shape { barriers: 1, stateful: 1, reads_params: 1, materializes: 0, sums: 1 };
    const FUSES: bool = false;

    fn validate(&self) -> Result<()> {
        check_decays(Self::NAME, [("b1", &self.b1), ("b2", &self.b2)])?;
        self.eps.validate(Self::NAME, "eps", "positive and finite", |x| x > 0.0 && x.is_finite())?;
        check_finite(Self::NAME, [("weight_decay", &self.weight_decay)])
    }

    fn init_state(&self, at: &InitContext<'_>) -> Result<ScaleByStableAdamState> {
        Ok(ScaleByStableAdamState {
            count: Count::default(),
            mu: at.moments_of(self.mu_dtype)?,
            nu: at.moments_of(self.nu_dtype)?,
            decays: self.mask.resolve(at.structure(), "mask of scale_by_stable_adam")?,
            factors: vec![1.0; at.structure().len()],
        })
    }

    fn begin(&self, state: &mut ScaleByStableAdamState, _: &StepContext<'_>) -> StableAdamRun {
        let clock = Clock { count: state.count.get() };
        state.count.increment();
        let [b1, b2, eps, weight_decay] =
            [&self.b1, &self.b2, &self.eps, &self.weight_decay].map(|h| h.at(clock.count));
        StableAdamRun { b1, b2, unbias: [b1, b2].map(|b| 1.0 / clock.bias_correction(b)), eps, weight_decay }
    }

    fn barrier(
        &self,
        state: &mut ScaleByStableAdamState,
        _: &mut StableAdamRun,
        at: &StepContext<'_>,
        _: usize,
        sums: Sums<'_>,
        _: &mut WholeTree<'_>,
    ) {
        for (i, (factor, leaf)) in state.factors.iter_mut().zip(at.structure().leaves()).enumerate() {
            *factor = shrink((sums.leaf(0, i) / leaf.len() as f64).sqrt(), 1.0);
        }
    }

    fn tile<C: Real>(
        &self,
        state: &ScaleByStableAdamState,
        run: &StableAdamRun,
        place: Place,
        span: Span,
        tile: &mut Tile<'_, C>,
    ) {
        if span.has(place.at) {
            let decay = if state.decays[tile.leaf()] { run.weight_decay } else { 0.0 };
            let job = Direction {
                mean1: Mean::of(run.b1),
                mean2: Mean::of(run.b2),
                unbias: run.unbias.map(C::of),
                eps: C::of(run.eps),
                least: C::of(run.eps * run.eps).max(C::min_positive_value()),
                weight_decay: C::of(decay),
            };
            slots_write([&state.mu, &state.nu], place.sum, tile, &job);
        }
        if span.has(place.at + 1) {
            let factor = factor_in::<C>(state.factors[tile.leaf()]);
            tile.u().iter_mut().for_each(|u| *u *= factor);
        }
    }

    fn kernel<C: Real>(&self, _: &ScaleByStableAdamState, _: &StableAdamRun, _: usize) {}

    fn state_bytes(&self, state: &ScaleByStableAdamState, leaf: usize, at: usize, span: Span) -> usize {
        let each = |m: &Moments| m.dtype(leaf).map_or(0, |dtype| 2 * dtype.size());
        if span.has(at) { each(&state.mu) + each(&state.nu) } else { 0 }
    }

    fn recipe(&self) -> crate::recipe::Recipe {
        crate::recipe::of_arguments(self)
    }

    fn describe(&self) -> String {
        Self::NAME.into()
    }
}

/// Moves the moments on, puts the direction in the place of the updates, and measures.
struct Direction<C> {
    mean1: Mean<C>,
    mean2: Mean<C>,
    unbias: [C; 2],
    eps: C,
    least: C,
    weight_decay: C,
}

/// How many sums are kept side by side; their number fixes the order of addition and so the result's bits.
const LANES: usize = 16;

impl<C: Real> Direction<C> {
    /// The direction, and the square of the gradient in units of the second moment.
    #[inline(always)]
    fn one(&self, u: C, p: C, m: &mut C, v: &mut C) -> (C, C) {
        *m = self.mean1.with(*m, u);
        *v = self.mean2.with(*v, u * u);
        let [mean, square] = [self.unbias[0] * *m, self.unbias[1] * *v];
        // A comparison that lets NaN through.
        let measure = if square < self.least { self.least } else { square };
        (mean / (square.sqrt() + self.eps) + self.weight_decay * p, u * u / measure)
    }
}

impl<C: Real> SlotsWriter<C, 2> for Direction<C> {
    #[inline(always)]
    fn write(&self, u: &mut [C], p: &[C], [m, v]: [&mut [C]; 2], sums: &mut [f64]) {
        let mut lanes = [0.0_f64; LANES];
        let n = u.len();
        let (p, m, v) = (&p[..n], &mut m[..n], &mut v[..n]);
        for start in (0..n).step_by(LANES) {
            for (lane, i) in lanes.iter_mut().zip(start..n.min(start + LANES)) {
                let (direction, square) = self.one(u[i], p[i], &mut m[i], &mut v[i]);
                u[i] = direction;
                *lane += square.as_f64();
            }
        }
        sums[0] += lanes.iter().sum::<f64>();
    }
}
