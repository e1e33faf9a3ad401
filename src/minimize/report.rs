//! What the function gives, and what is said of how it went.

use core::fmt;

use crate::engine::Outcome;
use crate::error::Error;
use crate::tree::Tree;

/// What a function that is minimized gives: its value and its gradient, or a `Result` of the two.
///
/// The error of a `Result` comes back from [`minimize`](crate::Minimize::minimize) as it is, and ends it. Errors of
/// this crate are turned into it, so it is a type with `From<gradchain::Error>`: an enum of your own, `Box<dyn
/// Error>`, or [`gradchain::Error`](crate::Error) itself.
///
/// A point where there is no value is no error: give NaN. A line search takes it for too far and tries a nearer point.
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
    message = "a function that is minimized gives its value and its gradient, and not `{Self}`",
    label = "`(value, gradient)` is expected from the function",
    note = "the value is a number, the gradient a tree with the structure of the parameters: `|p| (loss(p), gradient(p))`",
    note = "a `Result` of the two is fine as well, with an error type that has `From<gradchain::Error>`"
)]
pub trait Evaluated {
    /// A number.
    type Value: Into<f64>;
    /// A tree with the structure of the parameters.
    type Gradient: Tree;
    /// What comes back if the function fails, or a step.
    type Error: From<Error>;

    /// Value and gradient, if there are any.
    ///
    /// # Errors
    ///
    /// That of the function.
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

/// What a [`minimize_step`](crate::Minimize::minimize_step) did.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct MinimizeStep {
    /// The value before the step.
    pub value: f64,
    /// The Euclidean norm of the gradient before the step, over all leaves.
    pub gradient_norm: f64,
    /// How often the function was called.
    pub evaluations: usize,
    /// What the step did.
    pub outcome: Outcome,
}

/// How far a [`minimize`](crate::Minimize::minimize) is, for its [callback](super::Minimization::callback).
#[derive(Debug)]
#[non_exhaustive]
pub struct Progress<'a, P> {
    /// The parameters.
    pub params: &'a P,
    /// Steps done.
    pub steps: usize,
    /// How often the function was called.
    pub evaluations: usize,
    /// The value at the parameters.
    pub value: f64,
    /// The Euclidean norm of the gradient there, over all leaves.
    pub gradient_norm: f64,
}

/// How a [`minimize`](crate::Minimize::minimize) went.
///
/// It is shown as a sentence:
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
///      value 0.0, norm of the gradient 0.00e0"
/// );
/// # Ok::<(), gradchain::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Report {
    /// Steps done.
    pub steps: usize,
    /// How often the function was called.
    pub evaluations: usize,
    /// The value at the parameters, as they are now.
    pub value: f64,
    /// The Euclidean norm of the gradient there, over all leaves.
    pub gradient_norm: f64,
    /// Why it ended.
    pub stop: Stop,
}

impl Report {
    /// Whether a tolerance was met: of the gradient, the value or the step.
    pub fn converged(&self) -> bool {
        matches!(self.stop, Stop::Gradient | Stop::Value | Stop::Step)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { steps, evaluations, value, gradient_norm, stop } = self;
        write!(f, "{stop}, after {steps} steps and {evaluations} evaluations; ")?;
        write!(f, "value {value:?}, norm of the gradient {gradient_norm:.2e}")
    }
}

/// Why a [`minimize`](crate::Minimize::minimize) ended. It is shown as a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Stop {
    /// Converged: the norm of the gradient is within its [tolerance](super::Minimization::gradient_atol).
    Gradient,
    /// Converged: the last step changed the value by less than its [tolerance](super::Minimization::value_atol).
    Value,
    /// Converged: the last step was shorter than its [tolerance](super::Minimization::step_atol).
    Step,
    /// Step after step brought neither a lower value nor a smaller gradient, or left the parameters as they were:
    /// rounding errors hide what is left to be gained, or the direction does not go down. See
    /// [`patience`](super::Minimization::patience).
    Stalled,
    /// As many steps as were [allowed](super::Minimization::max_steps) are done.
    MaxSteps,
    /// The function was called as often as was [allowed](super::Minimization::max_evaluations).
    MaxEvaluations,
    /// The [callback](super::Minimization::callback) said so.
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
                "stalled: the last steps brought neither a lower value nor a smaller gradient; \
                 `minimize::check_gradient` tells whether the gradient is right"
            }
            Stop::MaxSteps => "not converged: the limit of steps is reached",
            Stop::MaxEvaluations => "not converged: the limit of evaluations is reached",
            Stop::Callback => "stopped by the callback",
            Stop::NotFinite => "failed: the value or the gradient at the parameters is not finite",
        })
    }
}
