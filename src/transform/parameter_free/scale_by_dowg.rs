use super::anchored::{Anchored, Squares, anchored_stage, larger};
use crate::engine::InitContext;
use crate::error::Result;
use crate::schedule::Hyperparam;
use crate::state::{Count, Moments, Scalar};
use crate::wrapper::{Argument, Arguments, state_fields};

/// Multiplies updates by how far the parameters ever were from where they began, squared, divided by the root of all
/// gradients, each weighted by that distance at the time.
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
/// One float of state for each parameter. One more pass, which reads gradients, parameters and the first parameters. Does
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
/// method](https://arxiv.org/abs/2305.16284), 2023, algorithm 1. Optax, `contrib.scale_by_dowg`. Differs: norms are summed
/// and kept in `f64`; with an `eps` of 0, Optax makes NaN while all gradients are zero.
pub fn scale_by_dowg() -> ScaleByDowg {
    ScaleByDowg { init_estim_sq_dist: None, eps: 1e-4.into() }
}

/// See [`scale_by_dowg`].
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a transformation does nothing until it is given gradients"]
pub struct ScaleByDowg {
    /// The first guess of the squared distance to the solution; by default `eps`. It is read once, in `init`; not negative.
    pub init_estim_sq_dist: Option<Hyperparam>,
    /// Added to the root; not negative.
    pub eps: Hyperparam,
}

impl ScaleByDowg {
    /// Sets [`init_estim_sq_dist`](struct@ScaleByDowg).
    pub fn init_estim_sq_dist(mut self, init_estim_sq_dist: impl Into<Hyperparam>) -> Self {
        self.init_estim_sq_dist = Some(init_estim_sq_dist.into());
        self
    }

    /// Sets [`eps`](struct@ScaleByDowg).
    pub fn eps(mut self, eps: impl Into<Hyperparam>) -> Self {
        self.eps = eps.into();
        self
    }
}

impl Arguments for ScaleByDowg {
    const NAME: &'static str = "scale_by_dowg";

    fn arguments(&mut self, visit: &mut dyn FnMut(&'static str, Argument<'_>)) {
        if let Some(guess) = &mut self.init_estim_sq_dist {
            visit("init_estim_sq_dist", Argument::Hyperparam(guess));
        }
        visit("eps", Argument::Hyperparam(&mut self.eps));
    }
}
anchored_stage!(ScaleByDowg; state ScaleByDowgState; scalars f64);

/// What [`scale_by_dowg`] remembers.
#[derive(Clone, Debug)]
pub struct ScaleByDowgState {
    /// Steps done.
    pub count: Count,
    /// The parameters in `init`.
    pub init_params: Moments,
    /// The weighted sum of squared gradients.
    pub weighted_sq_norm_grads: Scalar,
    /// The largest squared distance so far.
    pub estim_sq_dist: Scalar,
}

state_fields!(ScaleByDowgState<> { count, init_params, weighted_sq_norm_grads, estim_sq_dist });

impl Anchored for ScaleByDowg {
    const NAME: &'static str = "scale_by_dowg";
    type State = ScaleByDowgState;
    /// `eps`
    type Scalars = f64;

    fn check_arguments(&self) -> Result<()> {
        let arguments = [("init_estim_sq_dist", self.init_estim_sq_dist.as_ref()), ("eps", Some(&self.eps))];
        for (argument, value) in arguments {
            let Some(value) = value else { continue };
            let not_negative = |x: f64| x >= 0.0 && x.is_finite();
            value.validate(<Self as Anchored>::NAME, argument, "finite and not negative", not_negative)?;
        }
        Ok(())
    }

    fn start(&self, at: &InitContext<'_>) -> Result<ScaleByDowgState> {
        Ok(ScaleByDowgState {
            count: Count::default(),
            init_params: at.params_as_moments()?,
            weighted_sq_norm_grads: Scalar::default(),
            estim_sq_dist: Scalar::new(self.init_estim_sq_dist.as_ref().unwrap_or(&self.eps).at(0)),
        })
    }

    fn first_params(state: &ScaleByDowgState) -> &Moments {
        &state.init_params
    }

    fn scalars(&self, state: &mut ScaleByDowgState) -> f64 {
        let count = state.count.get();
        state.count.increment();
        self.eps.at(count)
    }

    fn take(_: f64, state: &mut ScaleByDowgState, sums: Squares<'_>) {
        let [of_updates, of_distance] = sums.total();
        let distance = larger(state.estim_sq_dist.get(), of_distance);
        state.estim_sq_dist.set(distance);
        state.weighted_sq_norm_grads.set(state.weighted_sq_norm_grads.get() + distance * of_updates);
    }

    fn factor(eps: f64, state: &ScaleByDowgState, _: usize) -> f64 {
        let divisor = state.weighted_sq_norm_grads.get().sqrt() + eps;
        if divisor == 0.0 { 0.0 } else { state.estim_sq_dist.get() / divisor }
    }
}
