mod dimensions;
mod newton_schulz;
#[cfg(feature = "program")]
mod remote;

use std::sync::Arc;

use self::dimensions::{MatrixOffsets, matrices_of};
use self::newton_schulz::Scratch;
use crate::internal::state::state_fields;
use crate::part::prelude::*;
use crate::tree::LeafSpec;

pub(super) use self::dimensions::matrix_shape;
#[cfg(feature = "faer")]
pub(super) use self::dimensions::one_matrix;
pub use self::dimensions::{DimensionNumbers, MatrixAxes, WeightDimensionNumbers};
pub use self::newton_schulz::{NsCoeffs, Preconditioning};

/// Replaces the running mean of each matrix by an approximation of the nearest orthogonal matrix: the core of Muon.
///
/// # Arithmetic
///
/// At step `t`, counted from 1, for each matrix:
///
/// ```text
/// m ← beta·m + (1 − beta)·u                   starts at 0
/// m̂ = beta·m / (1 − betaᵗ⁺¹) + (1 − beta)·u / (1 − betaᵗ)      without nesterov: m / (1 − betaᵗ)
/// X ← m̂ / (‖m̂‖ + eps·min(10³·‖m̂‖, 1))       by default the Frobenius norm; see Preconditioning
/// ns_steps times:  A = X·Xᵀ;  X ← a·X + (b·A + c·A²)·X          with (a, b, c) = ns_coeffs
/// u ← X                                       with adaptive: ⟨m̂, X⟩·X
/// ```
///
/// This brings the singular values near 1. The default coefficients rise as steeply as possible at 0 and do not
/// converge: singular values end up between about 0.7 and 1.2. Products are computed in the compute type. Results do
/// not depend on the number of threads or the memory order; between SIMD levels the last bits differ.
/// [`weight_dimension_numbers`](ScaleByMuon::weight_dimension_numbers) describes the matrices of leaves with more axes.
///
/// # Cost
///
/// One float of state per parameter, and two copies of the largest matrix and two of its shorter side squared. Each
/// product allocates some 2 MB for its factors. One more pass; between the two, a matrix of `n × m` with `n ≤ m` takes
/// about `ns_steps·(3nm + n²)·n` multiplications and additions. Reads no parameters. With feature `rayon`, threads
/// share blocks of 256 rows.
///
/// # Errors
///
/// `init` fails if `beta` is not in `[0, 1)`, `eps` is negative or not finite, there are no coefficients, or a leaf has
/// other than two axes and no entry in `weight_dimension_numbers`.
///
/// # Example
///
/// With these coefficients, which do converge, the result is orthogonal, and a diagonal matrix keeps only its signs:
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::scale_by_muon;
/// use ndarray::array;
///
/// let optimizer = scale_by_muon().ns_coeffs([1.875, -1.25, 0.375]).ns_steps(20);
/// let params = array![[0.0_f64, 0.0], [0.0, 0.0]];
/// let updates = optimizer.update(&array![[3.0, 0.0], [0.0, -0.5]], &mut optimizer.init(&params)?, &params)?;
/// let expected = [1.0, 0.0, 0.0, -1.0];
/// approx::assert_relative_eq!(&updates.to_vec::<f64>("").unwrap()[..], &expected[..], epsilon = 1e-12);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Jordan et al., [Muon: an optimizer for hidden layers in neural
/// networks](https://kellerjordan.github.io/posts/muon/), 2024; Bernstein and Newhouse, [Old optimizer, new norm:
/// an anthology](https://arxiv.org/abs/2409.20325), 2024, for `adaptive`. Optax,
/// [`contrib.scale_by_muon`](https://optax.readthedocs.io/en/latest/api/contrib.html). Differs: norms are summed in
/// `f64`; `eps` is relative for norms below 1e-3, so that the scale of tiny gradients does not matter; with rows of
/// coefficients, `ns_steps` is ignored. Jordan's code works in bf16, without bias correction, and its mean is `beta·m +
/// u`.
pub fn scale_by_muon() -> ScaleByMuon {
    ScaleByMuon::with()
}

part! {
    /// See [`scale_by_muon`].
    pub ScaleByMuon as "scale_by_muon": Whole, SCALE_INVARIANT;
    hyperparams {
        /// Decay of the running mean.
        beta: DECAY = 0.95;
        /// Added to the norm.
        eps: NOT_NEGATIVE = 1e-8;
    }
    options {
        /// The coefficients of the iteration: three numbers for all steps, or a row of three for each step.
        ns_coeffs: NsCoeffs = NsCoeffs::standard();
        /// Dtype of the running mean; by default the compute type.
        mu_dtype: Option<DType> = None;
        /// If true, the running mean uses Nesterov momentum.
        nesterov: bool = true;
        /// If true, the result is multiplied by its inner product with the mean: the dual norm of the mean.
        adaptive: bool = false;
        /// The normalization that brings singular values to at most 1 before the iteration.
        preconditioning: Preconditioning = Preconditioning::Frobenius;
        /// Axes of a leaf that form the rows and columns of its matrices; by default, a leaf with two axes is one.
        weight_dimension_numbers: WeightDimensionNumbers = WeightDimensionNumbers::default();
    }
    integers {
        /// Number of iterations, at most 1000; ignored if the coefficients are rows.
        ns_steps: usize = 5, AT_MOST_1000;
    }
    check Self::check_coeffs;
}

/// The state of [`scale_by_muon`].
#[derive(Clone, Debug)]
pub struct ScaleByMuonState {
    /// Steps done.
    pub count: Count,
    /// As [`Steps::updates`](crate::part::Steps::updates).
    pub updates: PerLeaf<Count>,
    /// Running means.
    pub mu: Moments,
    places: Arc<[Option<MatrixOffsets>]>,
    scratch: Scratch,
}

state_fields!(ScaleByMuonState { count, updates, mu } facts { places });

impl ScaleByMuon {
    fn check_coeffs(&self) -> Result<()> {
        match self.ns_coeffs.is_empty() {
            true => Err(Error::argument(Self::NAME, "ns_coeffs", "three numbers, or rows of three", "no row")),
            false => Ok(()),
        }
    }
}

impl WholeTreeTransformation for ScaleByMuon {
    const SCOPE: Scope = Scope::LEAF.remote();
    type State = ScaleByMuonState;

    fn cost(&self, leaf: &LeafSpec) -> f64 {
        super::product_cost(leaf)
    }

    fn start(&self, at: &InitContext<'_>) -> Result<ScaleByMuonState> {
        let places = matrices_of(&self.weight_dimension_numbers, at, Self::NAME)?;
        let mu = at.moments_for(Slot::signed("mu"), self.mu_dtype)?;
        Ok(ScaleByMuonState {
            count: Count::default(),
            updates: at.updates(),
            mu,
            places: places.into(),
            scratch: Scratch::default(),
        })
    }

    fn transform(&self, state: &mut ScaleByMuonState, at: &StepContext<'_>, tree: &mut WholeTree<'_>) {
        let clock = Clock::begin(&mut state.count, &mut state.updates, at);
        let [beta, eps] = Hyperparam::all_at([&self.beta, &self.eps], clock.count);
        tree.visit(&mut Orthogonalize { rule: self, state, clock, beta, eps });
    }
}

#[derive(Clone, Copy)]
struct Momentum {
    decay: f64,
    weight: f64,
    mean_weight: f64,
    update_weight: f64,
}

impl Momentum {
    fn of(beta: f64, nesterov: bool, clock: Clock) -> Momentum {
        let unbias = 1.0 / clock.bias_correction(beta);
        let next = Clock::after(clock.updates.saturating_add(1));
        let (mean_weight, update_weight) = match nesterov {
            true => (beta / next.bias_correction(beta), (1.0 - beta) * unbias),
            false => (unbias, 0.0),
        };
        Momentum { decay: beta, weight: 1.0 - beta, mean_weight, update_weight }
    }

    /// Advances the mean, and replaces the updates by the corrected mean.
    fn apply<C: Real>(self, mean: &mut [C], u: &mut [C]) {
        let [decay, weight] = [C::of(self.decay), C::of(self.weight)];
        let [mean_weight, update_weight] = [C::of(self.mean_weight), C::of(self.update_weight)];
        for (mean, u) in mean.iter_mut().zip(u) {
            let m = decay * *mean + weight * *u;
            *mean = m;
            *u = mean_weight * m + update_weight * *u;
        }
    }
}

struct Orthogonalize<'a> {
    rule: &'a ScaleByMuon,
    state: &'a mut ScaleByMuonState,
    clock: Clock,
    beta: f64,
    eps: f64,
}

impl LeafVisitor for Orthogonalize<'_> {
    fn visit<C: Real>(&mut self, leaf: WholeLeaf<'_, C>) {
        let ScaleByMuonState { updates, mu, places, scratch, .. } = &mut *self.state;
        let momentum = Momentum::of(self.beta, self.rule.nesterov, self.clock.of_leaf(updates, leaf.index));
        let Some(places) = &places[leaf.index] else { return };
        mu.rewrite::<C>(leaf.index, |start, mean| momentum.apply(mean, &mut leaf.u[start..][..mean.len()]));
        let rule = self.rule;
        let coeffs = rule.ns_coeffs.rows(rule.ns_steps);
        let mut dual_norm = 0.0;
        for &at in places.matrices.iter() {
            dual_norm += scratch.orthogonalize(leaf.u, at, places, coeffs.clone(), rule.preconditioning, self.eps);
        }
        if rule.adaptive {
            let dual_norm = C::of(dual_norm);
            leaf.u.iter_mut().for_each(|u| *u *= dual_norm);
        }
    }

    #[cfg(feature = "program")]
    fn visit_remote(&mut self, leaf: usize, on: &mut dyn crate::part::RemoteLeaf) -> crate::part::Line {
        self.remote(leaf, on)
    }
}
