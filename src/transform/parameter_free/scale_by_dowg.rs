use super::anchored::anchored;
use crate::internal::numeric::max_or_nan;
use crate::internal::state::state_fields;
use crate::part::prelude::*;
use crate::transform::rescale::factor_in;

/// Scales updates by the DoWG step size: the squared largest distance over the root of weighted squared gradients.
///
/// Each square is weighted by the squared distance estimate at its step.
///
/// Needs the feature `contrib`.
///
/// # Arithmetic
///
/// With `x0` the parameters in `init`, norms over all leaves together, summed in `f64`:
///
/// ```text
/// r ← max(r, ‖p − x0‖²)                   starts at init_estim_sq_dist, or eps if that is not given
/// v ← v + r·‖u‖²                          starts at 0
/// u ← u · r / (√v + eps)                  0 where the divisor is 0
/// ```
///
/// # Cost
///
/// One float of state per parameter. One more pass, which reads gradients, parameters and the initial parameters. Does
/// not fuse into one loop.
///
/// # Errors
///
/// `init` fails if `init_estim_sq_dist` or `eps` is negative or not finite.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::scale_by_dowg;
///
/// let optimizer = scale_by_dowg().init_estim_sq_dist(4.0).eps(0.0);
/// let mut params = vec![1.0_f64, 1.0];
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &vec![3.0_f64, 4.0], &mut state)?;
/// approx::assert_relative_eq!(&params[..], &[2.2, 2.6][..], max_relative = 1e-15); // 4 / √(4·25) = 0.4
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Khaled, Mishchenko and Jin, [DoWG unleashed: an efficient universal parameter-free gradient descent
/// method](https://arxiv.org/abs/2305.16284), 2023, algorithm 1. Optax, `contrib.scale_by_dowg`. Differs: norms are
/// summed and kept in `f64`; with an `eps` of 0, Optax makes NaN while all gradients are zero.
pub fn scale_by_dowg() -> ScaleByDowg {
    ScaleByDowg::with()
}

part! {
    /// See [`scale_by_dowg`].
    pub ScaleByDowg as "scale_by_dowg": TwoPass, SAME_DIRECTION;
    hyperparams {
        /// Added to the root.
        eps: NOT_NEGATIVE = 1e-4;
    }
    optional {
        /// The first estimate of the squared distance to the solution, instead of `eps`. Read once, in `init`.
        init_estim_sq_dist: NOT_NEGATIVE;
    }
}

/// The state of [`scale_by_dowg`], besides the array `init_params` of the parameters in `init`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ScaleByDowgState {
    /// Steps done.
    pub count: Count,
    /// The weighted sum of squared gradients.
    pub weighted_sq_norm_grads: Scalar,
    /// The largest squared distance so far.
    pub estim_sq_dist: Scalar,
}

state_fields!(ScaleByDowgState { count, weighted_sq_norm_grads, estim_sq_dist });

impl TwoPasses for ScaleByDowg {
    anchored!();
    type Memory = ScaleByDowgState;
    /// `eps`
    type Run = f64;

    fn start(&self, _: &InitContext<'_>) -> Result<ScaleByDowgState> {
        Ok(ScaleByDowgState {
            count: Count::default(),
            weighted_sq_norm_grads: Scalar::default(),
            estim_sq_dist: Scalar::new(self.init_estim_sq_dist.as_ref().unwrap_or(&self.eps).at(0)),
        })
    }

    fn begin(&self, memory: &mut ScaleByDowgState, _: &StepContext<'_>) -> f64 {
        let count = memory.count.get();
        memory.count.increment();
        self.eps.at(count)
    }

    fn decide(&self, memory: &mut ScaleByDowgState, _: &mut f64, sums: Sums<'_>) {
        let [of_updates, of_distance] = [0, 1].map(|i| sums.total(i));
        let distance = max_or_nan(of_distance, memory.estim_sq_dist.get());
        memory.estim_sq_dist.set(distance);
        memory.weighted_sq_norm_grads.set(memory.weighted_sq_norm_grads.get() + distance * of_updates);
    }

    fn scalars<C: Real>(&self, memory: &ScaleByDowgState, eps: &f64, _: usize) -> C {
        let divisor = memory.weighted_sq_norm_grads.get().sqrt() + eps;
        factor_in(if divisor == 0.0 { 0.0 } else { memory.estim_sq_dist.get() / divisor })
    }
}
