use crate::element::Real;
use crate::engine::{InitContext, Place, Shape, Span, Stage, StepContext, Sums, Tile, WholeTree, sum_tile};
use crate::error::Result;
use crate::macros::builder;
use crate::schedule::Hyperparam;
use crate::state::{Count, State, StateWalk, StateWalkMut};

/// Multiplies the updates of each leaf by the root mean square of its parameters.
///
/// # Arithmetic
///
/// ```text
/// u ← u·max(√(mean p²), min_scale)
/// ```
///
/// Squares are summed in `f64`.
///
/// # Cost
///
/// No state for elements. Needs one more pass, to add up; reads parameters there.
///
/// # Errors
///
/// `init` fails if `min_scale` is negative or not finite.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
///
/// let optimizer = scale_by_param_block_rms();
/// let params = vec![1.0_f64, -7.0];
/// let updates = optimizer.update(&vec![1.0_f64, 2.0], &mut optimizer.init(&params)?, &params)?;
/// assert_eq!(updates.to_vec::<f64>("").unwrap(), [5.0, 10.0]);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Shazeer and Stern, [Adafactor: adaptive learning rates with sublinear memory cost](https://arxiv.org/abs/1804.04235),
/// 2018, section 8. Optax,
/// [`scale_by_param_block_rms`](https://optax.readthedocs.io/en/latest/api/transformations.html). Differs: squares are
/// summed in `f64`.
pub fn scale_by_param_block_rms() -> ScaleByParamBlockRms {
    ScaleByParamBlockRms { min_scale: 1e-3.into() }
}

/// See [`scale_by_param_block_rms`].
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a transformation does nothing until it is given gradients"]
pub struct ScaleByParamBlockRms {
    /// The least factor; not negative.
    pub min_scale: Hyperparam,
}

builder! {
    ScaleByParamBlockRms as "scale_by_param_block_rms" {
        hyperparams: min_scale;
        options: ;
    }
}

/// What [`scale_by_param_block_rms`] remembers.
#[derive(Clone, Debug)]
pub struct ScaleByParamBlockRmsState {
    /// Steps done.
    pub count: Count,
    /// The factor of each leaf, in this step.
    factors: Vec<f64>,
}

impl State for ScaleByParamBlockRmsState {
    fn walk<'a>(&'a self, walk: &mut StateWalk<'a, '_>) {
        walk.child("count", &self.count);
    }
    fn walk_mut<'a>(&'a mut self, walk: &mut StateWalkMut<'a, '_>) {
        walk.child("count", &mut self.count);
    }
}

impl Stage for ScaleByParamBlockRms {
    type State = ScaleByParamBlockRmsState;
    /// The least factor.
    type Run = f64;
    type Kernel<C: Real> = C;

    // Bit 0: parameters are read before the barrier.
    const SHAPE: Shape = Shape { barriers: 1, stateful: 0, reads_params: 1, materializes: 0, sums: 1 };
    const FUSES: bool = true;

    fn validate(&self) -> Result<()> {
        let name = <Self as crate::wrapper::Arguments>::NAME;
        self.min_scale.validate(name, "min_scale", "finite and not negative", |x| x >= 0.0 && x.is_finite())
    }

    fn init_state(&self, at: &InitContext<'_>) -> Result<ScaleByParamBlockRmsState> {
        Ok(ScaleByParamBlockRmsState { count: Count::default(), factors: vec![1.0; at.structure().len()] })
    }

    fn begin(&self, state: &mut ScaleByParamBlockRmsState, _: &StepContext<'_>) -> f64 {
        let min_scale = self.min_scale.at(state.count.get());
        state.count.increment();
        min_scale
    }

    fn barrier(
        &self,
        state: &mut ScaleByParamBlockRmsState,
        min_scale: &mut f64,
        at: &StepContext<'_>,
        _: usize,
        sums: Sums<'_>,
        _: &mut WholeTree<'_>,
    ) {
        for (i, factor) in state.factors.iter_mut().enumerate() {
            let rms = (sums.leaf(0, i) / at.leaf(i).len() as f64).sqrt();
            // `max` would drop a NaN.
            *factor = if rms <= *min_scale { *min_scale } else { rms };
        }
    }

    fn tile<C: Real>(&self, state: &Self::State, run: &f64, place: Place, span: Span, tile: &mut Tile<'_, C>) {
        crate::engine::fused_tile(self, state, run, place, span, tile);
    }

    #[inline]
    fn kernel<C: Real>(&self, state: &Self::State, _: &f64, leaf: usize) -> C {
        C::of(state.factors[leaf])
    }

    #[inline(always)]
    fn apply<C: Real>(factor: &C, at: usize, span: Span, _: &mut [C], u: C, _: C, _: &mut [u32]) -> C {
        if span.has(at + 1) { *factor * u } else { u }
    }

    #[inline(always)]
    fn reduce<C: Real>(_: &C, place: Place, span: Span, _: &[C], p: &[C], sums: &mut [f64]) {
        if span.to == place.at {
            sums[place.sum] += sum_tile(p, |p| p.as_f64() * p.as_f64());
        }
    }

    fn state_bytes(&self, _: &Self::State, _: usize, _: usize, _: Span) -> usize {
        0
    }

    fn describe(&self) -> String {
        <Self as crate::wrapper::Arguments>::NAME.into()
    }
}
