use super::anchored::{Anchored, Squares, anchored_stage, larger, squared};
use crate::element::DType;
use crate::engine::InitContext;
use crate::error::Result;
use crate::macros::builder;
use crate::schedule::Hyperparam;
use crate::state::{Count, Moments, PerLeaf, Scalar};
use crate::wrapper::state_fields;

/// Multiplies the updates of each leaf by how far its parameters ever were from where they began, divided by the root of all
/// its squared gradients: DoG, leaf by leaf.
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
/// One float of state for each parameter, two numbers for each leaf. One more pass, which reads gradients, parameters and
/// the first parameters. Does not fuse into one loop.
///
/// # Errors
///
/// `init` fails if `reps_rel` or `eps` is negative or not finite, or `global_scale` is not finite.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
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
/// [`scale_by_distance_over_gradients`](https://optax.readthedocs.io/en/latest/api/transformations.html). Differs: norms are
/// summed in `f64`; with an `eps` of 0, Optax makes NaN where all gradients were zero; a leaf that is a single number
/// stays one.
pub fn scale_by_distance_over_gradients() -> ScaleByDistanceOverGradients {
    ScaleByDistanceOverGradients {
        reps_rel: 1e-6.into(),
        eps: 1e-8.into(),
        param_dtype: DType::F32,
        global_scale: 1.0.into(),
    }
}

/// See [`scale_by_distance_over_gradients`].
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a transformation does nothing until it is given gradients"]
pub struct ScaleByDistanceOverGradients {
    /// The first distance, for each unit of the parameters' norm plus 1. It is read once, in `init`; not negative.
    pub reps_rel: Hyperparam,
    /// Added to the squared gradients; not negative.
    pub eps: Hyperparam,
    /// Type of the copy of the first parameters. For `f64` parameters with the default, the distance is at least that of
    /// rounding them to `f32`.
    pub param_dtype: DType,
    /// Multiplies all: any finite number.
    pub global_scale: Hyperparam,
}

builder! {
    ScaleByDistanceOverGradients as "scale_by_distance_over_gradients" {
        hyperparams: reps_rel, eps, global_scale;
        options: param_dtype: DType;
    }
}
anchored_stage!(ScaleByDistanceOverGradients; state ScaleByDistanceOverGradientsState; scalars [f64; 2]);

/// What [`scale_by_distance_over_gradients`] remembers.
#[derive(Clone, Debug)]
pub struct ScaleByDistanceOverGradientsState {
    /// Steps done.
    pub count: Count,
    /// The largest distance of each leaf so far.
    pub max_dist: PerLeaf<Scalar>,
    /// The sum of the squared gradients of each leaf.
    pub grad_sum_of_squares: PerLeaf<Scalar>,
    /// The parameters in `init`.
    pub init_params: Moments,
}

state_fields!(ScaleByDistanceOverGradientsState<> { count, max_dist, grad_sum_of_squares, init_params });

impl Anchored for ScaleByDistanceOverGradients {
    const NAME: &'static str = "scale_by_distance_over_gradients";
    type State = ScaleByDistanceOverGradientsState;
    type Scalars = [f64; 2];

    fn check_arguments(&self) -> Result<()> {
        let name = <Self as Anchored>::NAME;
        for (argument, value) in [("reps_rel", &self.reps_rel), ("eps", &self.eps)] {
            value.validate(name, argument, "finite and not negative", |x| x >= 0.0 && x.is_finite())?;
        }
        self.global_scale.validate(name, "global_scale", "finite", f64::is_finite)
    }

    fn start(&self, at: &InitContext<'_>) -> Result<ScaleByDistanceOverGradientsState> {
        let zeros = PerLeaf::new(at.active(), Scalar::default());
        let mut max_dist = zeros.clone();
        let exact = at.params_as_moments()?;
        for (leaf, dist) in max_dist.iter_mut() {
            dist.set(self.reps_rel.at(0) * (1.0 + squared(&exact, leaf).sqrt()));
        }
        Ok(ScaleByDistanceOverGradientsState {
            count: Count::default(),
            max_dist,
            grad_sum_of_squares: zeros,
            init_params: at.params_as_moments_of(Some(self.param_dtype))?,
        })
    }

    fn first_params(state: &ScaleByDistanceOverGradientsState) -> &Moments {
        &state.init_params
    }

    fn scalars(&self, state: &mut ScaleByDistanceOverGradientsState) -> [f64; 2] {
        let count = state.count.get();
        state.count.increment();
        [&self.eps, &self.global_scale].map(|h| h.at(count))
    }

    fn take(_: [f64; 2], state: &mut ScaleByDistanceOverGradientsState, sums: Squares<'_>) {
        let each = state.max_dist.iter_mut().zip(state.grad_sum_of_squares.iter_mut());
        for ((leaf, max_dist), (_, gradients)) in each {
            let [of_updates, of_distance] = sums.leaf(leaf);
            max_dist.set(larger(max_dist.get(), of_distance.sqrt()));
            gradients.set(gradients.get() + of_updates);
        }
    }

    fn factor([eps, scale]: [f64; 2], state: &ScaleByDistanceOverGradientsState, leaf: usize) -> f64 {
        let [distance, gradients] =
            [&state.max_dist, &state.grad_sum_of_squares].map(|values| values.get(leaf).unwrap_or_default().get());
        let divisor = (gradients + eps).sqrt();
        if divisor == 0.0 { 0.0 } else { scale * distance / divisor }
    }
}
