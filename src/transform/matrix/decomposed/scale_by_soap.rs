use super::super::WeightDimensionNumbers;
use super::kronecker::{Matrices, MatrixOffsets, Of, ScratchByType, square, square_arrays};
use crate::internal::state::state_fields;
use crate::part::prelude::*;
use crate::transform::moment::Mean;
use crate::tree::LeafSpec;

/// Scales the updates of a matrix as Adam does, in the eigenbasis of Shampoo's preconditioner.
///
/// Needs the feature `faer`.
///
/// # Arithmetic
///
/// For a matrix `G` of `n × m`, with the scalars of [`scale_by_adam`](crate::scale_by_adam):
///
/// ```text
/// G' = Qₗᵀ·G·Qᵣ
/// M ← b1·M + (1 − b1)·G;          M' = Qₗᵀ·M·Qᵣ
/// V ← b2·V + (1 − b2)·G'²
/// N' = M' / (1 − b1ᵗ) / (√(V / (1 − b2ᵗ)) + eps)
/// u ← Qₗ·N'·Qᵣᵀ
/// L ← b·L + (1 − b)·G·Gᵀ,   R ← b·R + (1 − b)·Gᵀ·G        b is shampoo_beta, or b2 without
/// every precondition_frequency steps:   Qₗ ← Q of L·Qₗ = QR,   Qᵣ ← Q of R·Qᵣ = QR
/// ```
///
/// where the columns of `Qₗ`, and with them the rows of `V`, are sorted by their weight `qᵀLq` first, and `Qᵣ`
/// likewise. The first gradient only initializes `L`, `R` and their eigenvectors; its update is zero and `t` is counted
/// from the next, because a gradient in its own eigenbasis carries no information.
///
/// A side longer than [`max_precond_dim`](ScaleBySoap::max_precond_dim) has no basis of its own. Leaves that are no
/// matrices, or have two such sides, are scaled as by Adam, from the first step on.
///
/// # Cost
///
/// For a matrix of `n × m`, `2nm + 2n² + 2m²` floats of state, and in memory four copies of the largest matrix and
/// three of the square of its side in `f64`; for other leaves two floats per parameter. One more pass, before which the
/// updates are stored. A step takes about `8nm(n + m)` multiplications and additions, each refresh of a basis `5n³`
/// more, in `f64`, and the first step about `12n³` for each side, once. Each product allocates some 2 MB for its
/// factors. Reads no parameters. The crate faer does the decompositions. Results do not depend on the number of
/// threads; between CPU models the last bits differ.
///
/// # Errors
///
/// `init` fails if a decay is not in `[0, 1)`, `eps` is negative or not finite, `precondition_frequency` is 0, or an
/// entry of `weight_dimension_numbers` does not describe its leaf as one matrix.
///
/// # Example
///
/// Here the eigenvectors are the coordinate axes, so the second step is Adam's:
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::scale_by_soap;
/// use ndarray::array;
///
/// let optimizer = scale_by_soap().eps(1e-12).b1(0.0);
/// let params = array![[0.0_f64, 0.0], [0.0, 0.0]];
/// let mut state = optimizer.init(&params)?;
/// let updates = optimizer.update(&array![[3.0, 0.0], [0.0, 1.0]], &mut state, &params)?;
/// assert_eq!(updates.to_vec::<f64>("").unwrap(), [0.0; 4]);
/// let updates = optimizer.update(&array![[2.0, -8.0], [1.0, 5.0]], &mut state, &params)?;
/// let expected = [1.0, -1.0, 1.0, 1.0];
/// approx::assert_relative_eq!(&updates.to_vec::<f64>("").unwrap()[..], &expected[..], epsilon = 1e-9);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Vyas, Morwani, Zhao, Shapira, Brandfonbrener, Janson and Kakade, [SOAP: improving and stabilizing Shampoo using
/// Adam](https://arxiv.org/abs/2409.11321), 2024, algorithms 3 and 4. Optax has none. Differs: the first step and the
/// order of the columns are those of the authors' code, which the paper does not specify; that code also makes a zero
/// first step for leaves that are no matrices, and merges axes.
pub fn scale_by_soap() -> ScaleBySoap {
    ScaleBySoap::with()
}

part! {
    /// See [`scale_by_soap`].
    pub ScaleBySoap as "scale_by_soap": Whole, SCALE_INVARIANT;
    hyperparams {
        /// Decay of the first moment.
        b1: DECAY = 0.95;
        /// Decay of the second moment.
        b2: DECAY = 0.95;
        /// Added to the root.
        eps: NOT_NEGATIVE = 1e-8;
    }
    options {
        /// Decay of the preconditioner; by default that of the second moment.
        shampoo_beta: Option<f64> = None, DECAY;
        /// Axes of a leaf that form the rows and columns of a matrix; by default, a leaf with two axes is one.
        weight_dimension_numbers: WeightDimensionNumbers = WeightDimensionNumbers::default();
    }
    integers {
        /// Number of steps that a basis is kept.
        precondition_frequency: u64 = 10, AT_LEAST_1;
        /// The longest side that has a basis.
        max_precond_dim: usize = 10_000;
    }
}

/// The state of [`scale_by_soap`].
#[derive(Clone, Debug)]
pub struct ScaleBySoapState {
    /// Steps done.
    pub count: Count,
    /// As [`Steps::updates`](crate::part::Steps::updates).
    pub updates: PerLeaf<Count>,
    /// First moments.
    pub mu: Moments,
    /// Second moments, of matrices in the basis.
    pub nu: Moments,
    /// Running means of `G·Gᵀ`.
    pub left: Moments,
    /// Running means of `Gᵀ·G`.
    pub right: Moments,
    /// The basis of the rows, as columns.
    pub left_basis: Moments,
    /// The basis of the columns, as columns.
    pub right_basis: Moments,
    matrices: Matrices,
    scratch: ScratchByType,
}

state_fields!(ScaleBySoapState { count, updates, mu, nu, left, right, left_basis, right_basis } means { matrices });

impl WholeTreeTransformation for ScaleBySoap {
    const SCOPE: Scope = Scope::LEAF;
    type State = ScaleBySoapState;

    fn cost(&self, leaf: &LeafSpec) -> f64 {
        super::super::product_cost(leaf)
    }

    fn start(&self, at: &InitContext<'_>) -> Result<ScaleBySoapState> {
        let (numbers, most) = (&self.weight_dimension_numbers, self.max_precond_dim);
        let matrices = Matrices::new(numbers, most, at, Self::NAME)?;
        let [left, right] = square_arrays(numbers, most, at)?;
        Ok(ScaleBySoapState {
            count: Count::default(),
            updates: at.updates(),
            mu: at.moments()?,
            nu: at.moments()?,
            left_basis: left.clone(),
            right_basis: right.clone(),
            left,
            right,
            matrices,
            scratch: ScratchByType::default(),
        })
    }

    fn transform(&self, state: &mut ScaleBySoapState, at: &StepContext<'_>, tree: &mut WholeTree<'_>) {
        let clock = Clock::begin(&mut state.count, &mut state.updates, at);
        let [b1, b2, eps] = Hyperparam::all_at([&self.b1, &self.b2, &self.eps], clock.count);
        let shampoo = self.shampoo_beta.unwrap_or(b2);
        tree.visit(&mut Scale { state, clock, every: self.precondition_frequency, b1, b2, eps, shampoo });
    }
}

struct Scale<'a> {
    state: &'a mut ScaleBySoapState,
    clock: Clock,
    /// Updates of a leaf between refreshes of its bases.
    every: u64,
    b1: f64,
    b2: f64,
    eps: f64,
    shampoo: f64,
}

impl Scale<'_> {
    fn adam<C: Real>(&self, steps: u64) -> Adam<C> {
        let clock = Clock::after(steps);
        Adam {
            mean1: Mean::of(self.b1),
            mean2: Mean::of(self.b2),
            unbias: [self.b1, self.b2].map(|b| C::of(1.0 / clock.bias_correction(b))),
            eps: C::of(self.eps),
        }
    }

    fn accumulate<C: Real>(&mut self, leaf: usize, size: [usize; 2]) {
        let ScaleBySoapState { left, right, scratch, .. } = &mut *self.state;
        let buffers = scratch.of::<C>();
        for (factor, of_rows) in [(left, true), (right, false)] {
            if let Some(factor) = factor.get_mut::<C>(leaf) {
                buffers.accumulate(size, of_rows, self.shampoo, 1.0 - self.shampoo, factor);
            }
        }
    }

    fn begin<C: Real>(&mut self, leaf: usize, size: [usize; 2]) {
        let ScaleBySoapState { left, right, left_basis, right_basis, scratch, .. } = &mut *self.state;
        let buffers = scratch.of::<C>();
        for (factor, basis, n) in [(left, left_basis, size[0]), (right, right_basis, size[1])] {
            if let (Some(factor), Some(basis)) = (factor.get::<C>(leaf), basis.get_mut::<C>(leaf)) {
                buffers.eigen.vectors(factor, n, basis);
            }
        }
    }

    /// Improves the bases, and reorders the second moments alike.
    fn refresh<C: Real>(&mut self, leaf: usize, places: &MatrixOffsets) {
        let ScaleBySoapState { nu, left, right, left_basis, right_basis, scratch, .. } = &mut *self.state;
        let (buffers, [rows, cols]) = (scratch.of::<C>(), places.size());
        let Some(nu) = nu.get_mut::<C>(leaf) else { return };
        for (factor, basis, of_rows) in [(left, left_basis, true), (right, right_basis, false)] {
            let (Some(factor), Some(basis)) = (factor.get::<C>(leaf), basis.get_mut::<C>(leaf)) else { continue };
            let old = &mut buffers.mean;
            places.read(nu, old);
            buffers.eigen.improve(factor, if of_rows { rows } else { cols }, basis, |order| {
                for i in 0..rows {
                    for j in 0..cols {
                        let from = if of_rows { order[i].1 * cols + j } else { i * cols + order[j].1 };
                        nu[places.rows[i] + places.cols[j]] = old[from];
                    }
                }
            });
        }
    }

    fn step<C: Real>(&mut self, leaf: usize, places: &MatrixOffsets, u: &mut [C], updates: u64) {
        let adam = self.adam::<C>(updates - 1);
        let ScaleBySoapState { mu, nu, left_basis, right_basis, scratch, .. } = &mut *self.state;
        let (buffers, size) = (scratch.of::<C>(), places.size());
        let (Some(mu), Some(nu)) = (mu.get_mut::<C>(leaf), nu.get_mut::<C>(leaf)) else { return };
        let left = left_basis.get::<C>(leaf).map(|q| square(q, size[0]));
        let right = right_basis.get::<C>(leaf).map(|q| square(q, size[1]));
        mu.iter_mut().zip(&*u).for_each(|(m, u)| *m = adam.mean1.with(*m, *u));
        places.read(mu, &mut buffers.mean);
        buffers.multiply(Of::Mean, size, left.map(|q| q.reversed_axes()), right);
        buffers.multiply(Of::Gradient, size, left.map(|q| q.reversed_axes()), right);
        let (rows, cols) = (&places.rows, &places.cols);
        let elements = rows.iter().flat_map(|i| cols.iter().map(move |j| i + j));
        for ((m, g), at) in buffers.mean.iter_mut().zip(&buffers.gradient).zip(elements) {
            *m = adam.scaled(*m, *g, &mut nu[at]);
        }
        buffers.multiply(Of::Mean, size, left, right.map(|q| q.reversed_axes()));
        places.write(&buffers.mean, u);
    }
}

impl LeafVisitor for Scale<'_> {
    fn visit<C: Real>(&mut self, leaf: WholeLeaf<'_, C>) {
        let (i, matrices) = (leaf.index, self.state.matrices.clone());
        let updates = self.clock.of_leaf(&self.state.updates, i).updates;
        let Some(places) = matrices.of(i) else {
            let adam = self.adam::<C>(updates);
            let ScaleBySoapState { mu, nu, .. } = &mut *self.state;
            let moments = mu.get_mut::<C>(i).unwrap_or_default().iter_mut().zip(nu.get_mut::<C>(i).unwrap_or_default());
            for (u, (m, v)) in leaf.u.iter_mut().zip(moments) {
                *m = adam.mean1.with(*m, *u);
                *u = adam.scaled(*m, *u, v);
            }
            return;
        };
        if leaf.u.is_empty() {
            return;
        }
        let size = places.size();
        places.read(leaf.u, &mut self.state.scratch.of::<C>().gradient);
        // The step uses the bases; the factors may be a step ahead.
        self.accumulate::<C>(i, size);
        if updates == 0 {
            self.begin::<C>(i, size);
            return leaf.u.fill(C::zero());
        }
        self.step(i, places, leaf.u, updates);
        if updates.is_multiple_of(self.every) {
            self.refresh::<C>(i, places);
        }
    }
}

#[derive(Clone, Copy)]
struct Adam<C> {
    mean1: Mean<C>,
    mean2: Mean<C>,
    unbias: [C; 2],
    eps: C,
}

impl<C: Real> Adam<C> {
    #[inline(always)]
    fn scaled(&self, m: C, u: C, v: &mut C) -> C {
        *v = self.mean2.with(*v, u * u);
        self.unbias[0] * m / ((self.unbias[1] * *v).sqrt() + self.eps)
    }
}
