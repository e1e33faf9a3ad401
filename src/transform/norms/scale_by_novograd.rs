use crate::element::{DType, Real};
use crate::engine::{
    InitContext, Place, Shape, SlotList, Span, Stage, StepContext, Sums, Tile, WholeTree, fused_tile, sum_tile,
};
use crate::error::Result;
use crate::macros::builder;
use crate::schedule::Hyperparam;
use crate::state::{Count, Moments, PerLeaf, Scalar};
use crate::transform::rescale::factor_in;
use crate::wrapper::{Arguments, state_fields};

/// Divides the updates of each leaf by the root of a running mean of their squared norm, adds decayed weights, and keeps a
/// decaying sum.
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
/// A leaf that has had no gradient other than zero yet, with an `eps` of 0, has 0 for the quotient.
///
/// # Cost
///
/// One float of state for each parameter, one number for each leaf. One more pass, which reads gradients and writes nothing.
/// Fuses; reads parameters.
///
/// # Errors
///
/// `init` fails if `b1` or `b2` is not in `[0, 1)`, `eps` or `eps_root` is negative or not finite, or `weight_decay` is not
/// finite.
///
/// # Example
///
/// The first update is the gradient divided by its norm:
///
/// ```
/// use gradchain::prelude::*;
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
/// summed and kept in `f64`; the sum of a 16-bit leaf is `f32` unless `mu_dtype` asks otherwise.
pub fn scale_by_novograd() -> ScaleByNovograd {
    ScaleByNovograd {
        b1: 0.9.into(),
        b2: 0.25.into(),
        eps: 1e-8.into(),
        eps_root: 0.0.into(),
        weight_decay: 0.0.into(),
        mu_dtype: None,
    }
}

/// See [`scale_by_novograd`].
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a transformation does nothing until it is given gradients"]
pub struct ScaleByNovograd {
    /// How much of the sum is kept, in `[0, 1)`.
    pub b1: Hyperparam,
    /// Decay of the squared norm, in `[0, 1)`.
    pub b2: Hyperparam,
    /// Added to the root; not negative.
    pub eps: Hyperparam,
    /// Added under the root; not negative.
    pub eps_root: Hyperparam,
    /// How much of the parameters is added to the sum.
    pub weight_decay: Hyperparam,
    /// Type of the sum; by default the one that arithmetic is done in.
    pub mu_dtype: Option<DType>,
}

builder! {
    ScaleByNovograd as "scale_by_novograd" {
        hyperparams: b1, b2, eps, eps_root, weight_decay;
        options: mu_dtype: Option<DType>;
    }
}

/// What [`scale_by_novograd`] remembers.
#[derive(Clone, Debug)]
pub struct ScaleByNovogradState {
    /// Steps done.
    pub count: Count,
    /// The decaying sum.
    pub mu: Moments,
    /// The running mean of each leaf's squared norm.
    pub nu: PerLeaf<Scalar>,
}

state_fields!(ScaleByNovogradState<> { count, mu, nu });

/// The hyperparameters of one step.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct NovogradRun {
    first: bool,
    b1: f64,
    b2: f64,
    eps: f64,
    eps_root: f64,
    weight_decay: f64,
}

/// What the element loop of a leaf needs.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct NovogradKernel<C> {
    keep: C,
    factor: C,
    weight_decay: C,
}

impl Stage for ScaleByNovograd {
    type Needs = crate::needs::Nothing;
    type State = ScaleByNovogradState;
    type Run = NovogradRun;
    type Kernel<C: Real> = NovogradKernel<C>;

    const SHAPE: Shape = Shape { barriers: 1, stateful: 0b10, reads_params: 0b10, materializes: 0, sums: 1 };
    const FUSES: bool = true;
    const SLOTS: usize = 1;

    fn validate(&self) -> Result<()> {
        for (name, beta) in [("b1", &self.b1), ("b2", &self.b2)] {
            beta.validate(Self::NAME, name, "in [0, 1)", |x| (0.0..1.0).contains(&x))?;
        }
        for (name, eps) in [("eps", &self.eps), ("eps_root", &self.eps_root)] {
            eps.validate(Self::NAME, name, "finite and not negative", |x| x >= 0.0 && x.is_finite())?;
        }
        self.weight_decay.validate(Self::NAME, "weight_decay", "finite", f64::is_finite)
    }

    fn init_state(&self, at: &InitContext<'_>) -> Result<ScaleByNovogradState> {
        let (mu, nu) = (at.moments_of(self.mu_dtype)?, PerLeaf::new(at.active(), Scalar::default()));
        Ok(ScaleByNovogradState { count: Count::default(), mu, nu })
    }

    fn begin(&self, state: &mut ScaleByNovogradState, _: &StepContext<'_>) -> NovogradRun {
        let count = state.count.get();
        state.count.increment();
        let [b1, b2, eps, eps_root, weight_decay] =
            [&self.b1, &self.b2, &self.eps, &self.eps_root, &self.weight_decay].map(|h| h.at(count));
        NovogradRun { first: count == 0, b1, b2, eps, eps_root, weight_decay }
    }

    fn barrier(
        &self,
        state: &mut ScaleByNovogradState,
        run: &mut NovogradRun,
        _: &StepContext<'_>,
        _: usize,
        sums: Sums<'_>,
        _: &mut WholeTree<'_>,
    ) {
        let keep = if run.first { 0.0 } else { run.b2 };
        for (leaf, nu) in state.nu.iter_mut() {
            // A first norm replaces what was there.
            let kept = if run.first { 0.0 } else { keep * nu.get() };
            nu.set(kept + (1.0 - keep) * sums.leaf(0, leaf));
        }
    }

    fn tile<C: Real>(
        &self,
        state: &ScaleByNovogradState,
        run: &NovogradRun,
        place: Place,
        span: Span,
        tile: &mut Tile<'_, C>,
    ) {
        fused_tile(self, state, run, place, span, tile);
    }

    #[inline]
    fn kernel<C: Real>(&self, state: &ScaleByNovogradState, run: &NovogradRun, leaf: usize) -> NovogradKernel<C> {
        let root = (state.nu.get(leaf).unwrap_or_default().get() + run.eps_root).sqrt() + run.eps;
        NovogradKernel {
            keep: C::of(run.b1),
            factor: factor_in(if root == 0.0 { 0.0 } else { 1.0 / root }),
            weight_decay: C::of(run.weight_decay),
        }
    }

    fn slots(&self, state: &ScaleByNovogradState, leaf: usize, list: &mut SlotList) {
        list.push(&state.mu, leaf);
    }

    #[inline(always)]
    fn apply<C: Real>(k: &NovogradKernel<C>, at: usize, span: Span, slots: &mut [C], u: C, p: C, _: &mut [u32]) -> C {
        if !span.has(at + 1) {
            return u;
        }
        slots[0] = k.keep * slots[0] + (u * k.factor + k.weight_decay * p);
        slots[0]
    }

    #[inline(always)]
    fn reduce<C: Real>(_: &NovogradKernel<C>, place: Place, span: Span, u: &[C], _: &[C], sums: &mut [f64]) {
        // Only the pass that ends at this barrier counts; later ones repeat what it did.
        if place.at == span.to {
            sums[place.sum] += sum_tile(u, |u| u.as_f64() * u.as_f64());
        }
    }

    fn state_bytes(&self, state: &ScaleByNovogradState, leaf: usize, at: usize, span: Span) -> usize {
        if span.has(at + 1) { state.mu.dtype(leaf).map_or(0, |dtype| 2 * dtype.size()) } else { 0 }
    }

    fn recipe(&self) -> crate::recipe::Recipe {
        crate::recipe::of_arguments(self)
    }

    fn describe(&self) -> String {
        Self::NAME.into()
    }
}
