//! Fits a model: minimizes a function, checks its gradient, and estimates standard errors of the parameters.
//!
//! Guide: [Least squares](https://docs.rs/gradchain/latest/gradchain/_guide/least_squares/index.html).
//!
//! Needs the feature `minimize`.
//!
//! | | |
//! |---|---|
//! | [`Minimize`] | does one step, or steps until a stopping condition; evaluates no point twice |
//! | [`Minimization::bounds`] | keeps parameters within bounds |
//! | [`check_gradient`] | compares a gradient with the value |
//! | [`hessian`] | computes the Hessian, from which [covariance and standard errors](Covariance) follow |

mod check_gradient;
mod covariance;
mod flat_point;
mod hessian;
mod memory;
mod report;
mod run;
mod within;

pub use check_gradient::{CheckGradient, GradientCheck, check_gradient};
pub use covariance::Covariance;
pub use hessian::{Hessian, HessianAt, hessian};
pub use report::{Evaluated, MinimizeStep, Progress, Report, Stop};
pub use run::Minimization;

use crate::internal::engine::CachedEvaluation;
use crate::tree::TreeMut;
use crate::{GradientTransformation, OptState};

/// Minimization of a function: steps that evaluate it themselves, for every [`GradientTransformation`].
///
/// The next step begins where a line search ended, which has evaluated the function there. The [`OptState`] keeps that
/// value and gradient with a fingerprint of the parameters' bits: the next step evaluates nothing again if its
/// parameters match. A change of the parameters, by you or by a later stage of the chain, is never missed.
///
/// The function must be the same in every step. If it changes from step to step, as the loss over mini-batches does,
/// use [`step_with`](GradientTransformation::step_with).
///
/// The function returns value and gradient, or a `Result` of the two; see [`Evaluated`].
pub trait Minimize: GradientTransformation + Sized {
    /// Does one step, for a function that returns value and gradient.
    ///
    /// # Cost
    ///
    /// Up to three copies of the gradient and one of the parameters.
    ///
    /// # Errors
    ///
    /// As [`step_with`](GradientTransformation::step_with), and the errors of the function, unchanged. An error leaves
    /// the parameters unchanged. The state is unchanged too if the error came before the step, at the parameters
    /// themselves; an error at a point that a line search tried leaves it [poisoned](crate::Error::is_poisoned).
    ///
    /// # Example
    ///
    /// ```
    /// use gradchain::prelude::*;
    ///
    /// let optimizer = lbfgs();
    /// let mut p = 2.0_f64;
    /// let mut state = optimizer.init(&p)?;
    /// let step = optimizer.minimize_step(&mut p, |p| (p * p / 2.0, *p), &mut state)?;
    /// // Once at 2, and once at 1, where the line search ended: a first step of length 1 was right.
    /// assert_eq!((step.value, step.evaluations, p), (2.0, 2, 1.0));
    ///
    /// let step = optimizer.minimize_step(&mut p, |p| (p * p / 2.0, *p), &mut state)?;
    /// assert_eq!((step.value, step.evaluations, p), (0.5, 1, 0.0)); // the value at 1 was cached
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    fn minimize_step<P, F, R>(&self, params: &mut P, f: F, state: &mut OptState<Self>) -> Result<MinimizeStep, R::Error>
    where
        P: TreeMut + Clone,
        F: FnMut(&P) -> R,
        R: Evaluated,
    {
        run::fallible(f, |f| {
            let mut memory = memory::Memory::of(state, f)?;
            memory.evaluate_at(params)?;
            let CachedEvaluation { value, .. } = memory.eval_cache.here;
            let gradient_norm = memory.gradient_norm(params);
            let outcome = memory.step(self, params, state)?;
            let evaluations = memory.evaluations;
            state.eval_cache = Some(memory.eval_cache);
            Ok(MinimizeStep { value, gradient_norm, evaluations, outcome })
        })
    }

    /// Steps until the function is minimized, or another stopping condition holds.
    ///
    /// See [`Minimization`] for tolerances, limits and a callback; [`run`](Minimization::run) starts it.
    ///
    /// # Example
    ///
    /// ```
    /// use gradchain::minimize::Stop;
    /// use gradchain::prelude::*;
    ///
    /// let optimizer = lbfgs();
    /// let mut p = [3.0_f64, -1.0];
    /// let mut state = optimizer.init(&p)?;
    /// let bowl = |p: &[f64; 2]| (p[0] * p[0] + 5.0 * p[1] * p[1], [2.0 * p[0], 10.0 * p[1]]);
    /// let report = optimizer.minimize(&mut p, bowl, &mut state).gradient_atol(1e-12).max_steps(100).run()?;
    /// assert_eq!(report.stop, Stop::Gradient);
    /// assert!(report.converged() && report.value < 1e-24 && report.gradient_norm <= 1e-12);
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    fn minimize<'a, P, F, R>(
        &'a self,
        params: &'a mut P,
        f: F,
        state: &'a mut OptState<Self>,
    ) -> Minimization<'a, Self, P, F>
    where
        P: TreeMut + Clone,
        F: FnMut(&P) -> R,
        R: Evaluated,
    {
        Minimization::new(self, params, f, state)
    }
}

impl<T: GradientTransformation + Sized> Minimize for T {}
