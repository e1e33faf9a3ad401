use crate::internal::numeric::squares;
use crate::internal::state::state_fields;
use crate::part::prelude::*;

/// Divides updates by the root of the summed mean squares of their row: one number per row.
///
/// A row is one index of the first axis: the vector of a word in an embedding. A leaf without axes is one row.
///
/// # Arithmetic
///
/// For each row of a leaf, whose mean is summed in `f64`:
///
/// ```text
/// sum_of_squares ← sum_of_squares + mean(u²)     starts at initial_accumulator_value
/// u ← u / (√sum_of_squares + eps)                0 where sum_of_squares is 0
/// ```
///
/// # Cost
///
/// One float of state per row. One more pass, before which the updates are stored; reads no parameters. [Row-sparse
/// gradients](crate::tree::SparseRows) touch only their rows, and the updates replace the gradients.
///
/// # Errors
///
/// `init` fails if `initial_accumulator_value` or `eps` is negative or not finite.
///
/// # Example
///
/// The mean squares of the rows are 25 and 4; the second step adds 75 to the first:
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::scale_by_rowwise_rss;
/// use ndarray::array;
///
/// let optimizer = scale_by_rowwise_rss().eps(0.0);
/// let params = array![[0.0_f64, 0.0], [0.0, 0.0]];
/// let mut state = optimizer.init(&params)?;
/// let updates = optimizer.update(&array![[1.0, -7.0], [2.0, 2.0]], &mut state, &params)?;
/// let expected = [0.2, -1.4, 1.0, 1.0];
/// approx::assert_relative_eq!(&updates.to_vec::<f64>("").unwrap()[..], &expected[..], max_relative = 1e-12);
/// let updates = optimizer.update(&array![[5.0 * 6.0_f64.sqrt(), 0.0], [0.0, 0.0]], &mut state, &params)?;
/// approx::assert_relative_eq!(updates.to_vec::<f64>("").unwrap()[0], 1.5_f64.sqrt());
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Duchi, Hazan and Singer, [Adaptive subgradient methods for online learning and stochastic
/// optimization](https://jmlr.org/papers/v12/duchi11a.html), 2011, with one number for a row: `EXACT_ROWWISE_ADAGRAD`
/// of [FBGEMM](https://docs.pytorch.org/FBGEMM/), `RWSAdagrad` of [DLRM](https://github.com/facebookresearch/dlrm).
/// Optax has none. Differs: FBGEMM has no `initial_accumulator_value` and sums up in `f32`; DLRM's `eps` is 1e-10.
pub fn scale_by_rowwise_rss() -> ScaleByRowwiseRss {
    ScaleByRowwiseRss::with()
}

part! {
    /// See [`scale_by_rowwise_rss`].
    pub ScaleByRowwiseRss as "scale_by_rowwise_rss": Whole, SCALE_INVARIANT;
    hyperparams {
        /// Initial value of the sums.
        initial_accumulator_value: NOT_NEGATIVE = 0.0;
        /// Added to the root.
        eps: NOT_NEGATIVE = 1e-8;
    }
}

/// The state of [`scale_by_rowwise_rss`].
#[derive(Clone, Debug)]
pub struct ScaleByRowwiseRssState {
    /// Steps done.
    pub count: Count,
    /// The sums, one number per row.
    pub sum_of_squares: Moments,
    scratch: Vec<f64>,
}

state_fields!(ScaleByRowwiseRssState { count, sum_of_squares });

impl WholeTreeTransformation for ScaleByRowwiseRss {
    const SCOPE: Scope = Scope::LEAF.rows();
    type State = ScaleByRowwiseRssState;

    fn start(&self, at: &InitContext<'_>) -> Result<ScaleByRowwiseRssState> {
        let rows = |leaf: &crate::tree::LeafSpec| Some(vec![leaf.shape().first().copied().unwrap_or(1)]);
        let mut sums = Moments::with_shapes(at.structure(), at.active(), |leaf| leaf.dtype().compute(), rows)?;
        sums.fill(self.initial_accumulator_value.at(0));
        Ok(ScaleByRowwiseRssState { count: Count::default(), sum_of_squares: sums, scratch: Vec::new() })
    }

    fn transform(&self, state: &mut ScaleByRowwiseRssState, _: &StepContext<'_>, tree: &mut WholeTree<'_>) {
        let eps = self.eps.at(state.count.get());
        state.count.increment();
        tree.visit(&mut Scale { state, eps });
    }
}

struct Scale<'a> {
    state: &'a mut ScaleByRowwiseRssState,
    eps: f64,
}

impl LeafVisitor for Scale<'_> {
    fn visit<C: Real>(&mut self, leaf: WholeLeaf<'_, C>) {
        let ScaleByRowwiseRssState { sum_of_squares, scratch, .. } = &mut *self.state;
        let Some(sums) = sum_of_squares.get_mut::<C>(leaf.index) else { return };
        // Equally long runs belong to the rows in turn.
        let run = leaf.strides().first().map_or(1, |stride| stride.unsigned_abs());
        let size = (leaf.spec.len() / sums.len()) as f64;
        let count = leaf.rows.map_or(sums.len(), <[usize]>::len);
        scratch.clear();
        scratch.resize(count, 0.0);
        for (i, run) in leaf.u.chunks(run).enumerate() {
            scratch[i % count] += squares(run);
        }
        for (i, sum) in scratch.iter_mut().enumerate() {
            let row = &mut sums[leaf.rows.map_or(i, |rows| rows[i])];
            *row = C::of(row.as_f64() + *sum / size);
            let root = row.as_f64().sqrt();
            *sum = if root == 0.0 { 0.0 } else { 1.0 / (root + self.eps) };
        }
        for (i, run) in leaf.u.chunks_mut(run).enumerate() {
            let factor = C::of(scratch[i % count]);
            run.iter_mut().for_each(|u| *u *= factor);
        }
    }
}
