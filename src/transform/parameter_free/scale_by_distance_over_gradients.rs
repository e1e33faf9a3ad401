use super::anchored::{anchored, squared_norms};
use crate::internal::numeric::max_or_nan;
use crate::internal::state::state_fields;
use crate::part::prelude::*;
use crate::transform::rescale::factor_in;

/// Scales the updates of each leaf by the DoG step size: its largest distance over the root of summed squares.
///
/// # Arithmetic
///
/// For each leaf, with `x0` the parameters in `init`, sums in `f64`:
///
/// ```text
/// d ← max(d, ‖p − x0‖)                    starts at reps_rel·(1 + ‖x0‖)
/// G ← G + ‖u‖²                            starts at 0
/// u ← u · global_scale · d / √(G + eps)   0 where the divisor is 0
/// ```
///
/// # Cost
///
/// One float of state per parameter, two numbers per leaf. One more pass, which reads gradients, parameters and the
/// initial parameters. Does not fuse into one loop.
///
/// # Errors
///
/// `init` fails if `reps_rel` or `eps` is negative or not finite, or `global_scale` is not finite.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::scale_by_distance_over_gradients;
///
/// let optimizer = scale_by_distance_over_gradients().reps_rel(0.25).eps(0.0);
/// let mut params = vec![3.0_f32, 0.0];
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &vec![0.0_f32, 8.0], &mut state)?;
/// assert_eq!(params, [3.0, 1.0]); // 0.25·(1 + 3)·8 / √64
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Ivgi, Hinder and Carmon, [DoG is SGD's best friend: a parameter-free dynamic step size
/// schedule](https://arxiv.org/abs/2302.12022), 2023, section 4.2, L-DoG. Optax,
/// [`scale_by_distance_over_gradients`](https://optax.readthedocs.io/en/latest/api/transformations.html). Differs:
/// norms are summed in `f64`; with an `eps` of 0, Optax makes NaN where all gradients were zero; a leaf that is a
/// single number stays one.
pub fn scale_by_distance_over_gradients() -> ScaleByDistanceOverGradients {
    ScaleByDistanceOverGradients::with()
}

part! {
    /// See [`scale_by_distance_over_gradients`].
    pub ScaleByDistanceOverGradients as "scale_by_distance_over_gradients": TwoPass, SAME_DIRECTION;
    hyperparams {
        /// The initial distance, in units of the parameters' norm plus 1. Read once, in `init`.
        reps_rel: NOT_NEGATIVE = 1e-6;
        /// Added to the squared gradients.
        eps: NOT_NEGATIVE = 1e-8;
        /// Multiplies the updates.
        global_scale: FINITE = 1.0;
    }
    options {
        /// Dtype of the copy of the initial parameters. For `f64` parameters with the default, the distance includes
        /// the error of rounding them to `f32`.
        param_dtype: DType = DType::F32;
    }
}

/// The state of [`scale_by_distance_over_gradients`], besides the array `init_params` of the parameters in `init`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ScaleByDistanceOverGradientsState {
    /// Steps done.
    pub count: Count,
    /// The largest distance of each leaf so far.
    pub max_dist: PerLeaf<Scalar>,
    /// The sum of the squared gradients of each leaf.
    pub grad_sum_of_squares: PerLeaf<Scalar>,
}

state_fields!(ScaleByDistanceOverGradientsState { count, max_dist, grad_sum_of_squares });

impl TwoPasses for ScaleByDistanceOverGradients {
    anchored!();
    type Memory = ScaleByDistanceOverGradientsState;
    /// `eps` and `global_scale`
    type Run = [f64; 2];

    fn slot(&self, slot: Slot) -> Slot {
        slot.of_dtype(Some(self.param_dtype))
    }

    fn start(&self, at: &InitContext<'_>) -> Result<ScaleByDistanceOverGradientsState> {
        let zeros = PerLeaf::new(at.active(), Scalar::default());
        let (mut max_dist, squares) = (zeros.clone(), squared_norms(at)?);
        for (leaf, dist) in max_dist.iter_mut() {
            dist.set(self.reps_rel.at(0) * (1.0 + squares[leaf].sqrt()));
        }
        Ok(ScaleByDistanceOverGradientsState { count: Count::default(), max_dist, grad_sum_of_squares: zeros })
    }

    fn begin(&self, memory: &mut ScaleByDistanceOverGradientsState, _: &StepContext<'_>) -> [f64; 2] {
        let count = memory.count.get();
        memory.count.increment();
        Hyperparam::all_at([&self.eps, &self.global_scale], count)
    }

    fn decide(&self, memory: &mut ScaleByDistanceOverGradientsState, _: &mut [f64; 2], sums: Sums<'_>) {
        let each = memory.max_dist.iter_mut().zip(memory.grad_sum_of_squares.iter_mut());
        for ((leaf, max_dist), (_, gradients)) in each {
            let [of_updates, of_distance] = [0, 1].map(|i| sums.leaf(i, leaf));
            max_dist.set(max_or_nan(of_distance.sqrt(), max_dist.get()));
            gradients.set(gradients.get() + of_updates);
        }
    }

    fn scalars<C: Real>(&self, memory: &ScaleByDistanceOverGradientsState, k: &[f64; 2], leaf: usize) -> C {
        let [eps, scale] = *k;
        let [distance, gradients] =
            [&memory.max_dist, &memory.grad_sum_of_squares].map(|values| values.get(leaf).unwrap_or_default().get());
        let divisor = (gradients + eps).sqrt();
        factor_in(if divisor == 0.0 { 0.0 } else { scale * distance / divisor })
    }
}
