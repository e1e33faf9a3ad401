//! Results of the function, and reports of a minimization.

use core::fmt;

use crate::tree::Tree;
use crate::{Error, Outcome};

/// The result of a minimized function: its value and its gradient, or a `Result` of the two.
///
/// [`minimize`](crate::Minimize::minimize) returns the error of a `Result` unchanged, and ends. It also converts errors
/// of this crate into it, so the error type implements `From<gradchain::Error>`: an enum of your own, `Box<dyn Error>`,
/// or [`gradchain::Error`](crate::Error) itself.
///
/// If the function is undefined at a point, return NaN instead of an error: a line search then tries a shorter step.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
///
/// #[derive(Debug, PartialEq)]
/// enum Failure { Solver(&'static str), Optimizer(gradchain::Error) }
///
/// impl From<gradchain::Error> for Failure {
///     fn from(error: gradchain::Error) -> Failure { Failure::Optimizer(error) }
/// }
///
/// let optimizer = lbfgs();
/// let mut p = 2.0_f64;
/// let mut state = optimizer.init(&p).unwrap();
/// let loss = |p: &f64| if *p < 1.5 { Err(Failure::Solver("no solution")) } else { Ok((p * p, 2.0 * p)) };
/// let error = optimizer.minimize(&mut p, loss, &mut state).run().unwrap_err();
/// assert_eq!((error, p), (Failure::Solver("no solution"), 2.0));
/// ```
#[diagnostic::on_unimplemented(
    message = "the function to minimize must return its value and its gradient, not `{Self}`",
    label = "expected `(value, gradient)`",
    note = "the value is a number, the gradient a tree with the structure of the parameters: `|p| (loss(p), gradient(p))`",
    note = "a `Result` of the pair also works, if its error type implements `From<gradchain::Error>`"
)]
pub trait Evaluated {
    /// A number.
    type Value: Into<f64>;
    /// A tree with the structure of the parameters.
    type Gradient: Tree;
    /// The error of the function, or of a step.
    type Error: From<Error>;

    /// Returns value and gradient.
    ///
    /// # Errors
    ///
    /// Fails with the error of the function.
    fn into_result(self) -> Result<(Self::Value, Self::Gradient), Self::Error>;
}

impl<V: Into<f64>, G: Tree> Evaluated for (V, G) {
    type Value = V;
    type Gradient = G;
    type Error = Error;

    fn into_result(self) -> Result<(V, G), Error> {
        Ok(self)
    }
}

impl<V: Into<f64>, G: Tree, E: From<Error>> Evaluated for Result<(V, G), E> {
    type Value = V;
    type Gradient = G;
    type Error = E;

    fn into_result(self) -> Result<(V, G), E> {
        self
    }
}

/// The result of a [`minimize_step`](crate::Minimize::minimize_step).
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct MinimizeStep {
    /// The value before the step.
    pub value: f64,
    /// The Euclidean norm of the gradient before the step, over all leaves.
    pub gradient_norm: f64,
    /// Number of calls of the function.
    pub evaluations: usize,
    /// The outcome of the step.
    pub outcome: Outcome,
}

/// The progress of a [`minimize`](crate::Minimize::minimize), for its [callback](super::Minimization::callback).
#[derive(Debug)]
#[non_exhaustive]
pub struct Progress<'a, P> {
    /// The parameters.
    pub params: &'a P,
    /// Steps done.
    pub steps: usize,
    /// Number of calls of the function.
    pub evaluations: usize,
    /// The value at the parameters.
    pub value: f64,
    /// The Euclidean norm of the gradient there, over all leaves.
    pub gradient_norm: f64,
}

/// The report of a [`minimize`](crate::Minimize::minimize).
///
/// It displays as a sentence:
///
/// ```
/// use gradchain::prelude::*;
///
/// let optimizer = lbfgs();
/// let mut p = 2.0_f64;
/// let mut state = optimizer.init(&p)?;
/// let report = optimizer.minimize(&mut p, |p| (p * p, 2.0 * p), &mut state).run()?;
/// assert_eq!(
///     report.to_string(),
///     "converged: the gradient is within its tolerance, after 2 steps and 3 evaluations; \
///      value 0.0, gradient norm 0.00e0"
/// );
/// # Ok::<(), gradchain::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Report {
    /// Steps done.
    pub steps: usize,
    /// Number of calls of the function.
    pub evaluations: usize,
    /// The value at the final parameters.
    pub value: f64,
    /// The Euclidean norm of the gradient there, over all leaves.
    pub gradient_norm: f64,
    /// The reason for stopping.
    pub stop: Stop,
}

impl Report {
    /// Returns whether a tolerance was met: of the gradient, the value or the step.
    pub fn converged(&self) -> bool {
        matches!(self.stop, Stop::Gradient | Stop::Value | Stop::Step)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { steps, evaluations, value, gradient_norm, stop } = self;
        write!(f, "{stop}, after {steps} steps and {evaluations} evaluations; ")?;
        write!(f, "value {value:?}, gradient norm {gradient_norm:.2e}")
    }
}

/// The reason why a [`minimize`](crate::Minimize::minimize) stopped. It displays as a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Stop {
    /// Converged: the norm of the gradient is within its [tolerance](super::Minimization::gradient_atol).
    Gradient,
    /// Converged: the last step changed the value by less than its [tolerance](super::Minimization::value_atol).
    Value,
    /// Converged: the last step was shorter than its [tolerance](super::Minimization::step_atol).
    Step,
    /// Consecutive steps reduced neither the value nor the gradient, or did not change the parameters: further progress
    /// is below rounding error, or the step is not a descent direction. See
    /// [`patience`](super::Minimization::patience).
    Stalled,
    /// The [limit of steps](super::Minimization::max_steps) was reached.
    MaxSteps,
    /// The [limit of evaluations](super::Minimization::max_evaluations) was reached.
    MaxEvaluations,
    /// The [callback](super::Minimization::callback) returned `Break`.
    Callback,
    /// The value or the gradient at the parameters is infinite or NaN, or so large that the norm overflows.
    NotFinite,
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stop::Gradient => "converged: the gradient is within its tolerance",
            Stop::Value => "converged: the last step changed the value by less than its tolerance",
            Stop::Step => "converged: the last step was shorter than its tolerance",
            Stop::Stalled => {
                "stalled: the last steps reduced neither the value nor the gradient; check the gradient with \
                 `minimize::check_gradient`"
            }
            Stop::MaxSteps => "not converged: step limit reached",
            Stop::MaxEvaluations => "not converged: evaluation limit reached",
            Stop::Callback => "stopped by the callback",
            Stop::NotFinite => "failed: the value or the gradient at the parameters is not finite",
        })
    }
}
