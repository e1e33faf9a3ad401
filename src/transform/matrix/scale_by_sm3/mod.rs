mod loops;

use core::hint::select_unpredictable;
use std::sync::Arc;

use crate::internal::numeric::{axes_by_stride, current_simd_level, dispatch, run_parallel};
use crate::internal::state::state_fields;
use crate::part::prelude::*;
use crate::tree::LeafSpec;

use loops::{Elements, Least, Rows, Scalars};

/// Divides updates by the root of a bound on their summed squares, and averages the result.
///
/// The bound is the minimum of one accumulator per index of each axis.
///
/// # Arithmetic
///
/// For element `i, j, …`, with one array for each axis, all starting at 0:
///
/// ```text
/// v_ij… = b2·min(row_i, column_j, …) + (1 − b2)·u²       with b2 = 1: min(row_i, column_j, …) + u²
/// row_i ← max_j… v_ij…                                   and so for each axis
/// m ← b1·m + (1 − b1)·u / √(v + eps)                     0 for the quotient where v = 0
/// u ← m
/// ```
///
/// A leaf of one axis, or none, stores `v` itself: with `b2` 1 that is Adagrad.
///
/// # Cost
///
/// For a leaf of `n × m`, `n + m` floats of state, and one per parameter for the mean. One more pass, which only reads:
/// it reads the gradients once more, and has updates stored only if an earlier stage changed them. Reads no parameters.
///
/// # Errors
///
/// `init` fails if `b1` is not in `[0, 1)`, `b2` not in `[0, 1]`, or `eps` is negative or not finite.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::scale_by_sm3;
/// use ndarray::array;
///
/// let optimizer = scale_by_sm3().b1(0.0).eps(0.0);
/// let params = array![[0.0_f64, 0.0], [0.0, 0.0]];
/// let mut state = optimizer.init(&params)?;
/// let grads = array![[3.0, -1.0], [0.0, 1.0]];
/// let updates = optimizer.update(&grads, &mut state, &params)?;
/// assert_eq!(updates.to_vec::<f64>("").unwrap(), [1.0, -1.0, 0.0, 1.0]);
/// // The largest squares of the rows are 9 and 1, those of the columns the same.
/// let updates = optimizer.update(&array![[4.0, 0.0], [0.0, 0.0]], &mut state, &params)?;
/// assert_eq!(updates.to_vec::<f64>("").unwrap(), [0.8, 0.0, 0.0, 0.0]);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Anil, Gupta, Koren and Singer, [Memory-efficient adaptive optimization](https://arxiv.org/abs/1901.11150), 2019,
/// SM3-II. Optax, [`scale_by_sm3`](https://optax.readthedocs.io/en/latest/api/transformations.html). Differs: Optax
/// fails on leaves that are single numbers.
pub fn scale_by_sm3() -> ScaleBySm3 {
    ScaleBySm3::with()
}

part! {
    /// See [`scale_by_sm3`].
    pub ScaleBySm3 as "scale_by_sm3": WithLeafStatistics, SCALE_INVARIANT;
    hyperparams {
        /// Decay of the mean of the emitted updates.
        b1: DECAY = 0.9;
        /// Decay of the squares; 1 sums them.
        b2: UNIT_INTERVAL = 1.0;
        /// Added under the root.
        eps: NOT_NEGATIVE = 1e-8;
    }
}

/// The state of [`scale_by_sm3`] besides the array `nu`, the mean of the emitted updates.
#[derive(Clone, Debug)]
pub struct ScaleBySm3State {
    /// Steps done.
    pub count: Count,
    /// One accumulator for each index of each axis, the axes one after another.
    pub mu: Moments,
    /// `mu` before the step, of leaves with two axes or more.
    before: Moments,
    /// The next `mu`, per block.
    next: Moments,
    layouts: Arc<[Layout]>,
    scalars: Scalars<f64>,
}

state_fields!(ScaleBySm3State { count, mu } facts { layouts } scratch { before });

/// The layout of a leaf with two axes and two elements or more.
///
/// Empty for others, whose elements have their own bounds.
#[derive(Clone, Debug, Hash, Default)]
struct Layout {
    /// Length of each axis, outermost first, and the start of its numbers.
    axes: Vec<[usize; 2]>,
    /// Numbers of all axes in total.
    sizes: usize,
    /// Elements per index of the outermost axis, and indices per block.
    row: usize,
    per: usize,
}

/// The maximum number of blocks of a leaf, and the minimum number of elements of a block.
const BLOCKS: usize = 16;
const BLOCK: usize = 1 << 16;

impl Layout {
    fn new(leaf: &LeafSpec) -> Layout {
        let shape = leaf.shape();
        if shape.len() < 2 || leaf.len() < 2 {
            return Layout::default();
        }
        // An axis of length 1 adds no bound; two elements need a longer one.
        let axes: Vec<_> =
            axes_by_stride(shape, leaf.strides()).into_iter().map(|a| [shape[a], shape[..a].iter().sum()]).collect();
        let rows = axes[0][0];
        let row = leaf.len() / rows;
        Layout { axes, sizes: shape.iter().sum(), row, per: rows.div_ceil(BLOCKS).max(BLOCK.div_ceil(row)) }
    }

    fn blocks(&self) -> usize {
        self.axes.first().map_or(0, |[rows, _]| rows.div_ceil(self.per))
    }
}

impl LeafStatistics for ScaleBySm3 {
    const BY_LEAF: bool = true;
    const SLOTS: &'static [Slot] = &[Slot::signed("nu")];
    type State = ScaleBySm3State;
    type Slots<C: Real> = [C; 1];
    type Expanded<C: Real> = [C; 1];
    type Scalars<C: Real> = OfLeaf<C>;

    fn start(&self, at: &InitContext<'_>) -> Result<ScaleBySm3State> {
        let compute = |leaf: &LeafSpec| leaf.dtype().compute();
        let each_axis = |leaf: &LeafSpec| Some(vec![if leaf.ndim() == 0 { 1 } else { leaf.shape().iter().sum() }]);
        let mu = Moments::with_shapes(at.structure(), at.active(), compute, each_axis)?;
        let scratch = |of: fn(&Layout) -> usize| {
            Moments::with_shapes(at.structure(), at.active(), compute, |leaf| Some(vec![of(&Layout::new(leaf))]))
        };
        Ok(ScaleBySm3State {
            count: Count::default(),
            mu,
            before: scratch(|layout| layout.sizes)?,
            next: scratch(|layout| layout.blocks() * layout.sizes)?,
            layouts: at.structure().leaves().iter().map(Layout::new).collect(),
            scalars: self.scalars(0),
        })
    }

    fn collect_statistics(&self, state: &mut ScaleBySm3State, _: &StepContext<'_>, tree: &mut WholeTree<'_>) {
        state.scalars = self.scalars(state.count.get());
        state.count.increment();
        tree.observe(&mut Bounds(state));
    }

    fn scalars<C: Real>(&self, state: &ScaleBySm3State, leaf: usize) -> OfLeaf<C> {
        OfLeaf { k: state.scalars.rounded(), is_bound: state.layouts[leaf].axes.is_empty() }
    }

    fn expand<C: Real>(state: &ScaleBySm3State, leaf: usize, start: usize, to: &mut [&mut [C]]) {
        let ScaleBySm3State { mu, before, layouts, .. } = state;
        let (Some(mu), Some(before), [to]) = (mu.get::<C>(leaf), before.get::<C>(leaf), to) else { return };
        match &layouts[leaf] {
            layout if layout.axes.is_empty() => to.copy_from_slice(&mu[start..][..to.len()]),
            layout => dispatch(current_simd_level(), Least { layout, start, mu: before, to }),
        }
    }

    #[inline(always)]
    fn apply<C: Real>(OfLeaf { k, is_bound }: OfLeaf<C>, [nu]: &mut [C; 1], [bound]: &[C; 1], u: C) -> C {
        let v = select_unpredictable(is_bound, *bound, k.square(u, *bound));
        *nu = k.mean(u, v, *nu);
        *nu
    }
}

/// Scalars of the elements of a leaf.
#[derive(Clone, Copy, Debug)]
pub struct OfLeaf<C> {
    k: Scalars<C>,
    /// True if elements have their own bounds, which already include the squares.
    is_bound: bool,
}

struct Bounds<'a>(&'a mut ScaleBySm3State);

impl LeafObserver for Bounds<'_> {
    fn observe<C: Real>(&mut self, leaf: usize, _: &LeafSpec, u: &[C]) {
        let ScaleBySm3State { mu, before, next, layouts, scalars, .. } = &mut *self.0;
        let (Some(mu), Some(before), Some(next)) =
            (mu.get_mut::<C>(leaf), before.get_mut::<C>(leaf), next.get_mut::<C>(leaf))
        else {
            return;
        };
        let (k, layout) = (scalars.rounded(), &layouts[leaf]);
        if layout.axes.is_empty() {
            return run_parallel(u.len(), Elements { k, u, mu });
        }
        next.fill(C::zero());
        run_parallel(u.len(), Rows { k, layout, first: 0, u, mu: &*mu, next: &mut *next });
        before.copy_from_slice(mu);
        mu.fill(C::zero());
        for block in next.chunks_exact(layout.sizes) {
            mu.iter_mut().zip(block).for_each(|(mu, block)| *mu = mu.max_or_nan(*block));
        }
    }
}

impl ScaleBySm3 {
    fn scalars(&self, count: u64) -> Scalars<f64> {
        let [b1, b2, eps] = Hyperparam::all_at([&self.b1, &self.b2, &self.eps], count);
        let square_weight = if b2 == 1.0 { 1.0 } else { 1.0 - b2 };
        Scalars { keep: b1, take: 1.0 - b1, square_decay: b2, square_weight, eps }
    }
}
