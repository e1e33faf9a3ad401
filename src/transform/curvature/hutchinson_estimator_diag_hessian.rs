use crate::internal::numeric::{halves, leaf_key, path_hash, philox};
use crate::internal::state::state_fields;
use crate::needs::ValueAndGradFn;
use crate::part::prelude::*;
use crate::state::RandomKey;

/// Replaces the updates by an estimate of the Hessian's diagonal from two gradients of the loss.
///
/// It serves [`sophia`](crate::optimizer::sophia()).
///
/// # Arithmetic
///
/// With a sign `z` per parameter, `+1` or `−1` at random, and `h` the step size:
///
/// ```text
/// u ← z·(∇loss(p + h·z) − ∇loss(p − h·z)) / 2h
/// ```
///
/// Its mean over the signs is the diagonal, up to terms of the order of `h²`; where the Hessian is diagonal every
/// estimate is exact. By default `h` is the cube root of the machine epsilon of the leaves' least precise dtype, which
/// balances truncation and rounding errors for parameters and gradients near 1: 0.005 for `f32`, 6e-6 for `f64`.
///
/// Each sign is a function of the seed, the step, the leaf's path, and the element's place in row-major order.
///
/// # Cost
///
/// Scratch space for three floats per parameter; two evaluations of the gradient.
///
/// # Errors
///
/// `init` fails if the step size is not positive and finite.
///
/// # Example
///
/// ```
/// use gradchain::extra;
/// use gradchain::prelude::*;
/// use gradchain::transform::hutchinson_estimator_diag_hessian;
///
/// // x² + 3·y²
/// let loss = |p: &(f64, f64)| (p.0 * p.0 + 3.0 * p.1 * p.1, (2.0 * p.0, 6.0 * p.1));
/// let estimate = hutchinson_estimator_diag_hessian(42);
/// let params = (1.0, -1.0);
/// let mut state = estimate.init(&params)?;
/// let (value, gradient) = loss(&params);
/// let with = extra::value_and_grad_fn(value, loss);
/// let diagonal = estimate.update_with(&gradient, with, &mut state, &params)?;
/// assert!((diagonal.to_vec::<f64>("0").unwrap()[0] - 2.0).abs() < 1e-9);
/// assert!((diagonal.to_vec::<f64>("1").unwrap()[0] - 6.0).abs() < 1e-9);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Hutchinson, [A stochastic estimator of the trace of the influence matrix for Laplacian smoothing
/// splines](https://doi.org/10.1080/03610918908812806), 1989; Bekas, Kokiopoulou and Saad, [An estimator for the
/// diagonal of a matrix](https://doi.org/10.1016/j.apnum.2007.01.003), 2007. Optax,
/// [`contrib.hutchinson_estimator_diag_hessian`](https://optax.readthedocs.io/en/latest/api/contrib.html). Differs: the
/// Hessian-vector product is a finite difference of gradients, not automatic differentiation; other random numbers.
pub fn hutchinson_estimator_diag_hessian(random_seed: u64) -> HutchinsonEstimatorDiagHessian {
    HutchinsonEstimatorDiagHessian::with(random_seed)
}

part! {
    /// See [`hutchinson_estimator_diag_hessian`].
    pub HutchinsonEstimatorDiagHessian as "hutchinson_estimator_diag_hessian": Whole<ValueAndGradFn>;
    given {
        /// Seed of the signs.
        random_seed: u64;
    }
    options {
        /// Distance from the parameters at which gradients are taken; by default derived from the dtypes of the leaves.
        step_size: Option<f64> = None, POSITIVE;
    }
}

/// The state of [`hutchinson_estimator_diag_hessian`].
#[derive(Clone, Debug)]
pub struct HutchinsonState {
    /// Estimates made.
    pub count: Count,
    /// The seed; a run resumed from this state keeps it.
    pub key: RandomKey,
    /// The step size for the leaves' dtypes.
    default_step: f64,
    point: Moments,
    forward: Moments,
    backward: Moments,
}

state_fields!(HutchinsonState { count, key } scratch { point, forward, backward });

/// Returns the machine epsilon of a dtype.
fn spacing(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 2.0_f64.powi(-10),
        DType::Bf16 => 2.0_f64.powi(-7),
        DType::F64 => f64::EPSILON,
        _ => f64::from(f32::EPSILON),
    }
}

fn each_sign<C: Real>(leaf: &crate::tree::LeafSpec, key: [u32; 2], mut each: impl FnMut(usize, C)) {
    let (mut number, mut bits) = (0_u64, [0; 4]);
    leaf.each_place(|place| {
        let bit = number % 128;
        if bit == 0 {
            let [low, high] = halves(number / 128);
            bits = philox([low, high, 0, 0], key);
        }
        let positive = bits[(bit / 32) as usize] >> (bit % 32) & 1 == 1;
        each(place, if positive { C::one() } else { -C::one() });
        number += 1;
    });
}

#[derive(Clone, Copy)]
struct Signs {
    seed: u64,
    count: u64,
}

impl Signs {
    fn of(self, leaf: &crate::tree::LeafSpec) -> [u32; 2] {
        leaf_key(self.seed, self.count, path_hash(leaf.path()))
    }
}

/// Moves the parameters along the signs.
struct Perturb<'a> {
    signs: Signs,
    step: f64,
    point: &'a mut Moments,
}

impl LeafVisitor for Perturb<'_> {
    fn visit<C: Real>(&mut self, leaf: WholeLeaf<'_, C>) {
        let Some(point) = self.point.get_mut::<C>(leaf.index) else { return };
        let step = C::of(self.step);
        each_sign(leaf.spec, self.signs.of(leaf.spec), |i, z: C| point[i] = leaf.p[i] + step * z);
    }
}

struct Estimate<'a> {
    signs: Signs,
    /// Distance between the points of both gradients.
    distance: f64,
    forward: &'a Moments,
    backward: &'a Moments,
}

impl LeafVisitor for Estimate<'_> {
    fn visit<C: Real>(&mut self, leaf: WholeLeaf<'_, C>) {
        let (Some(forward), Some(backward)) = (self.forward.get::<C>(leaf.index), self.backward.get::<C>(leaf.index))
        else {
            return;
        };
        let distance = C::of(self.distance);
        each_sign(leaf.spec, self.signs.of(leaf.spec), |i, z: C| leaf.u[i] = z * (forward[i] - backward[i]) / distance);
    }
}

impl WholeTreeTransformation for HutchinsonEstimatorDiagHessian {
    const SCOPE: Scope = Scope::TREE.reads_params();
    type State = HutchinsonState;

    fn start(&self, at: &InitContext<'_>) -> Result<HutchinsonState> {
        let leaves = at.structure().leaves().iter().zip(at.active()).filter(|(_, on)| **on);
        let widest = leaves.map(|(leaf, _)| spacing(leaf.dtype())).fold(0.0, f64::max);
        Ok(HutchinsonState {
            count: Count::default(),
            key: RandomKey::new(self.random_seed),
            default_step: widest.cbrt(),
            point: at.moments()?,
            forward: at.moments()?,
            backward: at.moments()?,
        })
    }

    fn transform(&self, state: &mut HutchinsonState, _: &StepContext<'_>, tree: &mut WholeTree<'_>) {
        let signs = Signs { seed: state.key.get(), count: state.count.get() };
        state.count.increment();
        let HutchinsonState { default_step, point, forward, backward, .. } = state;
        let step = self.step_size.unwrap_or(*default_step);
        tree.visit(&mut Perturb { signs, step, point });
        tree.value_and_grad_at(point, forward);
        tree.visit(&mut Perturb { signs, step: -step, point });
        tree.value_and_grad_at(point, backward);
        tree.visit(&mut Estimate { signs, distance: 2.0 * step, forward, backward });
    }
}
