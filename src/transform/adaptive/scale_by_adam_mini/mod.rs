mod blocks;

pub use self::blocks::{Block, Blocks};

use crate::internal::numeric::{Job, current_simd_level, dispatch, squares};
use crate::internal::state::state_fields;
use crate::part::prelude::*;

/// Divides a running mean of the updates by the root of one second moment for each block of elements.
///
/// Within a block of weights that belong together, such as those of one output, one learning rate is about as good as
/// many, and the second moment needs almost no memory.
///
/// # Arithmetic
///
/// At step `t`, counted from 1, for each of the [blocks](ScaleByAdamMini::blocks) of a leaf, whose mean is summed in
/// `f64`:
///
/// ```text
/// m ← b1·m + (1 − b1)·u             first moment, starts at 0
/// v ← b2·v + (1 − b2)·mean(u²)      one for the block, starts at 0
/// u ← m / (1 − b1ᵗ) / (√(v / (1 − b2ᵗ)) + eps)
/// ```
///
/// # Cost
///
/// One float of state per parameter and one per block. One more pass, before which the updates are stored; reads no
/// parameters.
///
/// # Errors
///
/// `init` fails if `b1` or `b2` is not in `[0, 1)`, `eps` is negative or not finite, or the blocks do not fit: a path
/// names no leaf, an axis does not exist, or its length is not a multiple of the number of groups.
///
/// # Example
///
/// Columns are blocks. The first has a mean square of 25, the second of 4:
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::scale_by_adam_mini;
/// use ndarray::array;
///
/// let optimizer = scale_by_adam_mini().eps(0.0);
/// let params = array![[0.0_f64, 0.0], [0.0, 0.0]];
/// let updates = optimizer.update(&array![[1.0, 2.0], [-7.0, 2.0]], &mut optimizer.init(&params)?, &params)?;
/// let expected = [0.2, 1.0, -1.4, 1.0];
/// approx::assert_relative_eq!(&updates.to_vec::<f64>("").unwrap()[..], &expected[..], max_relative = 1e-12);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Zhang and others, [Adam-mini: use fewer learning rates to gain more](https://arxiv.org/abs/2406.16793), 2024,
/// algorithm 1. Optax has none. Differs: blocks do not follow from names; by default they are the outputs of a layer,
/// as in algorithm 3 but for queries and keys (a block per head) and embeddings (a block per token).
pub fn scale_by_adam_mini() -> ScaleByAdamMini {
    ScaleByAdamMini::with()
}

part! {
    /// See [`scale_by_adam_mini`].
    pub ScaleByAdamMini as "scale_by_adam_mini": Whole, SCALE_INVARIANT;
    hyperparams {
        /// Decay of the first moment.
        b1: DECAY = 0.9;
        /// Decay of the second moment.
        b2: DECAY = 0.999;
        /// Added to the root.
        eps: NOT_NEGATIVE = 1e-8;
    }
    options {
        /// The blocks of elements that share a second moment.
        blocks: Blocks = Blocks::default();
        /// Dtype of the first moment; by default the compute type.
        mu_dtype: Option<DType> = None;
    }
}

/// The state of [`scale_by_adam_mini`].
#[derive(Clone, Debug)]
pub struct ScaleByAdamMiniState {
    /// Steps done.
    pub count: Count,
    /// As [`Steps::updates`](crate::part::Steps::updates).
    pub updates: PerLeaf<Count>,
    /// First moments.
    pub mu: Moments,
    /// Second moments, one number per block.
    pub nu: Moments,
    /// Axis and number of blocks per leaf.
    blocks: Vec<[usize; 2]>,
    /// Scratch space.
    scratch: Vec<f64>,
}

state_fields!(ScaleByAdamMiniState { count, updates, mu, nu } means { blocks });

impl WholeTreeTransformation for ScaleByAdamMini {
    const SCOPE: Scope = Scope::LEAF;
    type State = ScaleByAdamMiniState;

    fn start(&self, at: &InitContext<'_>) -> Result<ScaleByAdamMiniState> {
        self.blocks.check(at, Self::NAME)?;
        let count = |leaf: &_| self.blocks.of(leaf).map(|runs| vec![runs.count]);
        let nu = Moments::with_shapes(at.structure(), at.active(), |leaf| leaf.dtype().compute(), count)?;
        let full = nu.leaves().filter(|leaf| at.structure().leaves()[*leaf].len() > 0);
        let most = full.filter_map(|leaf| nu.shape(leaf)).map(|shape| shape[0]).max().unwrap_or(0);
        let scratch = Vec::with_capacity(most);
        Ok(ScaleByAdamMiniState {
            count: Count::default(),
            updates: at.updates(),
            mu: at.moments_for(Slot::signed("mu"), self.mu_dtype)?,
            nu,
            blocks: at.structure().leaves().iter().map(|leaf| self.blocks.along(leaf)).collect(),
            scratch,
        })
    }

    fn transform(&self, state: &mut ScaleByAdamMiniState, at: &StepContext<'_>, tree: &mut WholeTree<'_>) {
        let clock = Clock::begin(&mut state.count, &mut state.updates, at);
        let [b1, b2, eps] = Hyperparam::all_at([&self.b1, &self.b2, &self.eps], clock.count);
        tree.visit(&mut Scale { rule: self, state, clock, b1, b2, eps });
    }
}

struct Scale<'a> {
    rule: &'a ScaleByAdamMini,
    state: &'a mut ScaleByAdamMiniState,
    clock: Clock,
    b1: f64,
    b2: f64,
    eps: f64,
}

impl LeafVisitor for Scale<'_> {
    fn visit<C: Real>(&mut self, leaf: WholeLeaf<'_, C>) {
        let ScaleByAdamMiniState { updates, mu, nu, scratch, .. } = &mut *self.state;
        let clock = self.clock.of_leaf(updates, leaf.index);
        let unbias = [self.b1, self.b2].map(|b| 1.0 / clock.bias_correction(b));
        let Some(runs) = self.rule.blocks.of(leaf.spec) else { return };
        let Some(nu) = nu.get_mut::<C>(leaf.index) else { return };
        scratch.clear();
        scratch.resize(runs.count, 0.0);
        for (i, run) in leaf.u.chunks(runs.len.max(1)).enumerate() {
            scratch[i % runs.count] += squares(run);
        }
        let size = leaf.u.len() as f64 / runs.count as f64;
        for (v, sum) in nu.iter_mut().zip(&mut *scratch) {
            *v = C::of(self.b2 * v.as_f64() + (1.0 - self.b2) * (*sum / size));
            *sum = unbias[0] / ((unbias[1] * v.as_f64()).sqrt() + self.eps);
        }
        let [decay, weight] = [self.b1, 1.0 - self.b1].map(C::of);
        let len = runs.len.max(1);
        mu.rewrite::<C>(leaf.index, |start, mut mu| {
            let (mut at, mut u) = (start, &mut leaf.u[start..]);
            while !mu.is_empty() {
                // To the end of the run.
                let here = (len - at % len).min(mu.len());
                let (run, mean);
                (run, u) = u.split_at_mut(here);
                (mean, mu) = mu.split_at_mut(here);
                // Before the first nonzero gradient the mean is zero, and the factor may be infinite.
                let factor = scratch[at / len % runs.count];
                let factor = if factor == f64::INFINITY { C::max_value() } else { C::of(factor) };
                dispatch(current_simd_level(), Step { decay, weight, factor, u: run, mu: mean });
                at += here;
            }
        });
    }
}

struct Step<'a, C> {
    decay: C,
    weight: C,
    factor: C,
    u: &'a mut [C],
    mu: &'a mut [C],
}

impl<C: Real> Job for Step<'_, C> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Step { decay, weight, factor, u, mu } = self;
        let mu = &mut mu[..u.len()];
        for i in 0..u.len() {
            let m = decay * mu[i] + weight * u[i];
            mu[i] = m;
            u[i] = factor * m;
        }
    }
}
