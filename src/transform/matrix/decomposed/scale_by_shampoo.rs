use super::super::WeightDimensionNumbers;
use super::kronecker::{Matrices, Of, ScratchByType, square, square_arrays};
use crate::internal::numeric::squares;
use crate::internal::state::state_fields;
use crate::part::prelude::*;
use crate::tree::LeafSpec;

/// Multiplies the updates of a matrix from both sides by inverse roots of its summed outer products.
///
/// Needs the feature `faer`.
///
/// # Arithmetic
///
/// For a matrix `G`, with `L` and `R` starting at 0:
///
/// ```text
/// L ← b2·L + w·G·Gᵀ,   R ← b2·R + w·Gᵀ·G          w = 1 − b2, or 1 if b2 is 1: the sum of all steps
/// in refreshing steps:   A = (L + eps·1)^(−1/4),   B = (R + eps·1)^(−1/4)
/// u ← A·G·B
/// ```
///
/// The roots are refreshed in each of the first `precondition_frequency` steps, since the first factors have low rank,
/// and from then on every `precondition_frequency` steps. Fresh roots make a `u` with `‖u‖² ≤ min(rows, columns)/w`. If
/// older roots exceed that bound, `G` has a component outside the range of their factors, and they are refreshed in
/// that step too.
///
/// In the first [`start_preconditioning_step`](ScaleByShampoo::start_preconditioning_step) steps a matrix's updates
/// stay as they are while `L` and `R` accumulate.
///
/// A side longer than [`max_precond_dim`](ScaleByShampoo::max_precond_dim) has no factor, and the other side then the
/// power `−1/2`. Leaves that are no matrices, or have two such sides, are scaled element by element, as by Adagrad:
///
/// ```text
/// v ← b2·v + w·u²
/// u ← u / √(v + eps)
/// ```
///
/// Eigenvalues are computed in `f64` by the crate faer. Results do not depend on the number of threads; between CPU
/// models the last bits differ.
///
/// # Cost
///
/// For a matrix of `n × m`, `2n² + 2m²` floats of state; for other leaves one float per parameter. One more pass,
/// before which the updates are stored. A step takes about `4nm(n + m)` multiplications and additions for a matrix, and
/// each refresh of a root of `n × n` about `12n³`, in `f64`: for large matrices set a large frequency, or use
/// [`scale_by_soap`](crate::transform::scale_by_soap). Each product allocates some 2 MB for its factors. Reads no
/// parameters.
///
/// # Errors
///
/// `init` fails if `b2` is not in `(0, 1]`, `eps` is not positive and finite, `precondition_frequency` is 0, or an
/// entry of `weight_dimension_numbers` does not describe its leaf as one matrix.
///
/// # Example
///
/// The roots of a diagonal matrix `diag(16, 81)` squared are `diag(1/4, 1/9)`, for each side:
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::scale_by_shampoo;
/// use ndarray::array;
///
/// let optimizer = scale_by_shampoo().eps(1e-12);
/// let params = array![[0.0_f64, 0.0], [0.0, 0.0]];
/// let updates = optimizer.update(&array![[16.0, 0.0], [0.0, -81.0]], &mut optimizer.init(&params)?, &params)?;
/// let expected = [1.0, 0.0, 0.0, -1.0];
/// approx::assert_relative_eq!(&updates.to_vec::<f64>("").unwrap()[..], &expected[..], epsilon = 1e-12);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Gupta, Koren and Singer, [Shampoo: preconditioned stochastic tensor optimization](https://arxiv.org/abs/1802.09568),
/// 2018, algorithm 1; Anil, Gupta, Koren, Regan and Singer, [Scalable second order optimization for deep
/// learning](https://arxiv.org/abs/2002.09018), 2020, for `b2` and sides without a factor. Optax has none. Differs:
/// `eps` is added where a root is taken instead of once at the start, which is the same where `b2` is 1; roots are also
/// refreshed if they exceed the bound above; leaves of more than two axes are matrices if they are described as such,
/// never tensors. [`graft`](crate::wrapper::graft()) gives the updates the size of another optimizer's, as Anil and
/// others do.
pub fn scale_by_shampoo() -> ScaleByShampoo {
    ScaleByShampoo::with()
}

part! {
    /// See [`scale_by_shampoo`].
    pub ScaleByShampoo as "scale_by_shampoo": Whole, SCALE_INVARIANT;
    hyperparams {
        /// Decay of the factors; 1 is no decay.
        b2: POSITIVE_FRACTION = 1.0;
        /// Added to the eigenvalues.
        eps: POSITIVE = 1e-6;
    }
    options {
        /// Axes of a leaf that form the rows and columns of a matrix; by default, a leaf with two axes is one.
        weight_dimension_numbers: WeightDimensionNumbers = WeightDimensionNumbers::default();
    }
    integers {
        /// Number of steps between refreshes of a root. As many first steps refresh it each.
        precondition_frequency: u64 = 10, AT_LEAST_1;
        /// Number of updates of a matrix that pass unchanged before the first preconditioned one.
        start_preconditioning_step: u64 = 0;
        /// The longest side that has a factor.
        max_precond_dim: usize = 1024;
    }
}

/// The state of [`scale_by_shampoo`].
#[derive(Clone, Debug)]
pub struct ScaleByShampooState {
    /// Steps done.
    pub count: Count,
    /// As [`Steps::updates`](crate::part::Steps::updates).
    pub updates: PerLeaf<Count>,
    /// Sums or running means of `G·Gᵀ`.
    pub left: Moments,
    /// Sums or running means of `Gᵀ·G`.
    pub right: Moments,
    /// Inverse roots of `left`.
    pub left_root: Moments,
    /// Inverse roots of `right`.
    pub right_root: Moments,
    /// Sums or running means of the squares of leaves that are no matrices.
    pub v: Moments,
    matrices: Matrices,
    scratch: ScratchByType,
}

state_fields!(ScaleByShampooState { count, updates, left, right, left_root, right_root, v } means { matrices });

impl WholeTreeTransformation for ScaleByShampoo {
    const SCOPE: Scope = Scope::LEAF;
    type State = ScaleByShampooState;

    fn cost(&self, leaf: &LeafSpec) -> f64 {
        super::super::product_cost(leaf)
    }

    fn start(&self, at: &InitContext<'_>) -> Result<ScaleByShampooState> {
        let (numbers, most) = (&self.weight_dimension_numbers, self.max_precond_dim);
        let matrices = Matrices::new(numbers, most, at, Self::NAME)?;
        let [left, right] = square_arrays(numbers, most, at)?;
        let others: Vec<bool> = at.active().iter().enumerate().map(|(i, on)| *on && matrices.of(i).is_none()).collect();
        Ok(ScaleByShampooState {
            count: Count::default(),
            updates: at.updates(),
            left_root: left.clone(),
            right_root: right.clone(),
            left,
            right,
            v: Moments::like(at.structure(), &others, 0.0, |leaf| leaf.dtype().compute())?,
            matrices,
            scratch: ScratchByType::default(),
        })
    }

    fn transform(&self, state: &mut ScaleByShampooState, at: &StepContext<'_>, tree: &mut WholeTree<'_>) {
        let clock = Clock::begin(&mut state.count, &mut state.updates, at);
        let [b2, eps] = Hyperparam::all_at([&self.b2, &self.eps], clock.count);
        let take = if b2 < 1.0 { 1.0 - b2 } else { 1.0 };
        let (every, start) = (self.precondition_frequency, self.start_preconditioning_step);
        tree.visit(&mut Precondition { state, clock, every, start, keep: b2, take, eps });
    }
}

struct Precondition<'a> {
    state: &'a mut ScaleByShampooState,
    clock: Clock,
    /// Updates of a leaf between refreshes of its roots.
    every: u64,
    /// Updates of a leaf before the first preconditioned one.
    start: u64,
    keep: f64,
    take: f64,
    eps: f64,
}

impl LeafVisitor for Precondition<'_> {
    fn visit<C: Real>(&mut self, leaf: WholeLeaf<'_, C>) {
        let (i, u) = (leaf.index, leaf.u);
        let ScaleByShampooState { updates, left, right, left_root, right_root, v, matrices, scratch, .. } =
            &mut *self.state;
        let updates = self.clock.of_leaf(updates, i).updates;
        if let Some(v) = v.get_mut::<C>(i) {
            let [keep, take, eps] = [self.keep, self.take, self.eps].map(C::of);
            for (u, v) in u.iter_mut().zip(v) {
                *v = keep * *v + take * (*u * *u);
                *u /= (*v + eps).sqrt();
            }
            return;
        }
        let Some(places) = matrices.of(i).filter(|_| !u.is_empty()) else { return };
        let (buffers, size) = (scratch.of::<C>(), places.size());
        places.read(u, &mut buffers.gradient);
        for (factor, of_rows) in [(&mut *left, true), (&mut *right, false)] {
            if let Some(factor) = factor.get_mut::<C>(i) {
                buffers.accumulate(size, of_rows, self.keep, self.take, factor);
            }
        }
        let Some(preconditioned) = updates.checked_sub(self.start) else { return };
        let both = left.dtype(i).is_some() && right.dtype(i).is_some();
        let power = if both { -0.25 } else { -0.5 };
        // The bound of fresh roots: `L ⪰ w·G·Gᵀ` and `R ⪰ w·Gᵀ·G`.
        let most = size[0].min(size[1]) as f64 / self.take;
        let mut fresh = updates < self.every || preconditioned.is_multiple_of(self.every);
        loop {
            for (factor, root, n) in [(&*left, &mut *left_root, size[0]), (&*right, &mut *right_root, size[1])] {
                if let (true, Some(factor), Some(root)) = (fresh, factor.get::<C>(i), root.get_mut::<C>(i)) {
                    buffers.eigen.power(factor, n, self.eps, power, root);
                }
            }
            let [left, right] = [&*left_root, &*right_root].map(|root| root.get::<C>(i));
            buffers.multiply(Of::Gradient, size, left.map(|x| square(x, size[0])), right.map(|x| square(x, size[1])));
            if fresh || squares(&buffers.gradient) <= most {
                break;
            }
            fresh = true;
            places.read(u, &mut buffers.gradient);
        }
        places.write(&buffers.gradient, u);
    }
}
