//! Steps until a stopping condition.

use core::cell::Cell;
use core::fmt;
use core::ops::ControlFlow;

use super::memory::Memory;
use super::report::{Evaluated, Progress, Report, Stop};
use crate::arguments::CheckRange;
use crate::internal::engine::{GradientSink, deliver};
use crate::projection::Operand;
use crate::range::AT_LEAST_0;
use crate::tree::{TreeMut, tree_add_scaled, tree_norm};
use crate::{Error, GradientTransformation, OptState, Result};

/// A configured [`minimize`](crate::Minimize::minimize): tolerances, limits, a callback; [`run`](Self::run) starts it.
///
/// # Arithmetic
///
/// With the value `f`, the Euclidean norm `‖·‖` over all leaves, the initial gradient `g₀`, the current one `g`, and
/// the parameters `p₋` and the value `f₋` before the last step, it has converged if
///
/// ```text
/// ‖g‖      ≤ gradient_atol + gradient_rtol·‖g₀‖
/// |f − f₋| < value_atol + value_rtol·|f|             and the step moved the parameters
/// ‖p − p₋‖ < step_atol + step_rtol·‖p‖               and the step moved the parameters
/// ```
///
/// A line search that fails does not move the parameters, which is no convergence. Otherwise it ends after `max_steps`
/// steps or `max_evaluations` evaluations, when the callback returns `Break`, or when it stalls: when `patience` steps
/// in a row brought neither a value lower than all before nor a gradient smaller than all before, or 20 in a row left
/// the parameters unchanged.
///
/// Defaults: `gradient_atol` 1e-8, all other tolerances 0; `max_steps` 10000, no limit of evaluations, `patience` 100.
///
/// # Cost
///
/// As [`minimize_step`](crate::Minimize::minimize_step) for each step; with a tolerance of the step, also a copy of the
/// parameters in each.
///
/// # Example
///
/// The value changes little in the flat valley of Rosenbrock's function, so that a tolerance of the value ends too
/// early:
///
/// ```
/// use std::ops::ControlFlow;
/// use gradchain::minimize::Stop;
/// use gradchain::prelude::*;
///
/// let rosenbrock = |&[x, y]: &[f64; 2]| {
///     let (a, b) = (1.0 - x, y - x * x);
///     (a * a + 100.0 * b * b, [-2.0 * a - 400.0 * b * x, 200.0 * b])
/// };
/// let optimizer = lbfgs();
/// let start = [-1.2, 1.0];
///
/// let (mut p, mut state) = (start, optimizer.init(&start)?);
/// let report = optimizer.minimize(&mut p, rosenbrock, &mut state).value_rtol(0.1).run()?;
/// assert_eq!((report.stop, report.converged()), (Stop::Value, true));
/// assert!(report.value > 1.0);
///
/// let (mut p, mut state) = (start, optimizer.init(&start)?);
/// let mut values = Vec::new();
/// let report = optimizer
///     .minimize(&mut p, rosenbrock, &mut state)
///     .gradient_atol(1e-10)
///     .max_evaluations(100)
///     .callback(|progress| {
///         values.push(progress.value);
///         ControlFlow::Continue(())
///     })
///     .run()?;
/// assert_eq!(report.stop, Stop::Gradient);
/// assert_eq!(values.len(), report.steps + 1);
/// assert!(values.is_sorted_by(|a, b| a > b));
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// PyTorch's `LBFGS` has `tolerance_grad`, for the largest element of the gradient, and `tolerance_change`, for both
/// value and step. scipy's `minimize` has `gtol`, for the largest element, and `ftol`, relative to the value or 1.
/// Differs: Euclidean norms, each with an absolute and a relative tolerance; a step that leaves the parameters
/// unchanged meets no tolerance.
#[must_use = "nothing is minimized until `run` is called"]
pub struct Minimization<'a, T: GradientTransformation, P, F> {
    transformation: &'a T,
    params: &'a mut P,
    f: F,
    state: &'a mut OptState<T>,
    until: Until,
    bounds: Option<[Operand; 2]>,
    callback: Option<Callback<'a, P>>,
}

type Callback<'a, P> = Box<dyn FnMut(&Progress<'_, P>) -> ControlFlow<()> + 'a>;

#[derive(Debug)]
struct Until {
    gradient_atol: f64,
    gradient_rtol: f64,
    value_atol: f64,
    value_rtol: f64,
    step_atol: f64,
    step_rtol: f64,
    max_steps: usize,
    max_evaluations: usize,
    patience: usize,
}

impl Default for Until {
    fn default() -> Until {
        Until {
            gradient_atol: 1e-8,
            gradient_rtol: 0.0,
            value_atol: 0.0,
            value_rtol: 0.0,
            step_atol: 0.0,
            step_rtol: 0.0,
            max_steps: 10_000,
            max_evaluations: usize::MAX,
            patience: 100,
        }
    }
}

impl Until {
    fn check(&self) -> Result<()> {
        Error::all([
            self.gradient_atol.check_range("minimize", "gradient_atol", AT_LEAST_0),
            self.gradient_rtol.check_range("minimize", "gradient_rtol", AT_LEAST_0),
            self.value_atol.check_range("minimize", "value_atol", AT_LEAST_0),
            self.value_rtol.check_range("minimize", "value_rtol", AT_LEAST_0),
            self.step_atol.check_range("minimize", "step_atol", AT_LEAST_0),
            self.step_rtol.check_range("minimize", "step_rtol", AT_LEAST_0),
        ])
    }
}

/// Setters; [`Minimization`] lists the defaults.
impl<'a, T: GradientTransformation, P, F> Minimization<'a, T, P, F> {
    /// Sets the norm of the gradient at convergence.
    ///
    /// [At least 0](AT_LEAST_0).
    pub fn gradient_atol(mut self, gradient_atol: f64) -> Self {
        self.until.gradient_atol = gradient_atol;
        self
    }

    /// Sets the tolerance of the gradient relative to the initial norm; it adds to the absolute one.
    ///
    /// [At least 0](AT_LEAST_0).
    pub fn gradient_rtol(mut self, gradient_rtol: f64) -> Self {
        self.until.gradient_rtol = gradient_rtol;
        self
    }

    /// Sets the change of the value below which it has converged; 0 disables the test.
    ///
    /// [At least 0](AT_LEAST_0).
    pub fn value_atol(mut self, value_atol: f64) -> Self {
        self.until.value_atol = value_atol;
        self
    }

    /// Sets the tolerance of the value relative to it; it adds to the absolute one.
    ///
    /// [At least 0](AT_LEAST_0).
    pub fn value_rtol(mut self, value_rtol: f64) -> Self {
        self.until.value_rtol = value_rtol;
        self
    }

    /// Sets the length of a step below which it has converged; 0 disables the test.
    ///
    /// [At least 0](AT_LEAST_0).
    pub fn step_atol(mut self, step_atol: f64) -> Self {
        self.until.step_atol = step_atol;
        self
    }

    /// Sets the tolerance of the step relative to the norm of the parameters; it adds to the absolute one.
    ///
    /// [At least 0](AT_LEAST_0).
    pub fn step_rtol(mut self, step_rtol: f64) -> Self {
        self.until.step_rtol = step_rtol;
        self
    }

    /// Sets the largest number of steps.
    pub fn max_steps(mut self, max_steps: usize) -> Self {
        self.until.max_steps = max_steps;
        self
    }

    /// Sets the number of evaluations after which no further step begins.
    ///
    /// A step that has begun is finished. The parameters are evaluated at least once, unless their value is known.
    pub fn max_evaluations(mut self, max_evaluations: usize) -> Self {
        self.until.max_evaluations = max_evaluations;
        self
    }

    /// Sets the number of steps in a row that may bring neither a lower value nor a smaller gradient.
    ///
    /// Increase it for optimizers whose loss goes up and down, such as Adam.
    pub fn patience(mut self, patience: usize) -> Self {
        self.until.patience = patience;
        self
    }
}

impl Until {
    fn measures_steps(&self) -> bool {
        self.step_atol > 0.0 || self.step_rtol > 0.0
    }
}

/// Consecutive steps that may leave the parameters unchanged. It exceeds the memory of L-BFGS: each such step drops one
/// difference, so that the last searches go along the gradient.
const MAX_STEPS_WITHOUT_MOVE: usize = 20;

impl<'a, T: GradientTransformation, P: TreeMut + Clone, F> Minimization<'a, T, P, F> {
    pub(super) fn new(transformation: &'a T, params: &'a mut P, f: F, state: &'a mut OptState<T>) -> Self {
        Minimization { transformation, params, f, state, until: Until::default(), bounds: None, callback: None }
    }

    /// Keeps each element between two bounds.
    ///
    /// Each bound is a number, or a tree with the leaves of the parameters; `f64::NEG_INFINITY` and `f64::INFINITY` are
    /// no bounds.
    ///
    /// The function is evaluated within the bounds only; parameters that start out of bounds are moved to the nearest
    /// one. `‖g‖` is then the norm of the projected gradient `p − project(p − g)`: a minimum on a bound has converged.
    /// [`lbfgs`](crate::lbfgs) excludes elements that the gradient holds at a bound from its direction, and its line
    /// search follows the bounds that it meets (the projected Newton method, with the Hessian of L-BFGS). Steps of
    /// other optimizers are projected, which is right if each element has its own rate, as for [`sgd`](crate::sgd())
    /// and [`adam`](crate::adam()).
    ///
    /// ```
    /// use gradchain::prelude::*;
    ///
    /// #[derive(Clone, Tree)]
    /// struct Model { level: f64, slope: f64 }
    ///
    /// // The minimum is at a slope of -1, which is not allowed.
    /// let loss = |m: &Model| {
    ///     let (a, b) = (m.level + m.slope - 2.0, m.slope + 1.0);
    ///     (a * a + b * b, Model { level: 2.0 * a, slope: 2.0 * (a + b) })
    /// };
    /// let optimizer = lbfgs();
    /// let mut model = Model { level: 0.0, slope: 1.0 };
    /// let mut state = optimizer.init(&model)?;
    /// let lower = Model { level: f64::NEG_INFINITY, slope: 0.0 };
    /// let report = optimizer.minimize(&mut model, loss, &mut state).bounds(&lower, f64::INFINITY).run()?;
    /// assert!(report.converged() && report.gradient_norm <= 1e-8);
    /// assert_eq!(model.slope, 0.0);
    /// assert!((model.level - 2.0).abs() < 1e-8);
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`run`](Self::run) fails if a tree does not fit the parameters, a bound is NaN or a schedule, or an upper bound
    /// is less than the lower one. Bounds are rounded to the dtype of their leaf.
    ///
    /// # References
    ///
    /// Bertsekas, [Projected Newton methods for optimization problems with simple
    /// constraints](https://doi.org/10.1137/0320018), 1982. Byrd, Lu, Nocedal and Zhu, [A limited memory algorithm for
    /// bound constrained optimization](https://doi.org/10.1137/0916069), 1995, is L-BFGS-B: scipy's
    /// `minimize(bounds=..)` and R's `optim`. Differs: no Cauchy point; `docs/curvature.md` compares evaluations.
    pub fn bounds(mut self, lower: impl Into<Operand>, upper: impl Into<Operand>) -> Self {
        self.bounds = Some([lower.into(), upper.into()]);
        self
    }

    /// Sets a callback for the start and for the end of each step; `ControlFlow::Break` stops the run.
    pub fn callback(mut self, callback: impl FnMut(&Progress<'_, P>) -> ControlFlow<()> + 'a) -> Self {
        self.callback = Some(Box::new(callback));
        self
    }

    /// Steps until a stopping condition.
    ///
    /// The function is always evaluated at the start, so that it may differ from that of a previous run: a warm start.
    /// The state keeps learnt quantities, such as the curvature of [`lbfgs`](crate::lbfgs).
    ///
    /// # Errors
    ///
    /// Fails if a tolerance is negative or NaN; otherwise as [`minimize_step`](crate::Minimize::minimize_step). The
    /// parameters are then those after the last finished step.
    pub fn run<R>(self) -> Result<Report, R::Error>
    where
        F: FnMut(&P) -> R,
        R: Evaluated,
    {
        let Minimization { transformation, params, f, state, until, bounds, mut callback } = self;
        fallible(f, |f| {
            until.check()?;
            let mut memory = Memory::of(state, f)?;
            memory.invalidate();
            if let Some([lower, upper]) = &bounds {
                memory.keep_within([lower, upper], params)?;
            }
            let mut course =
                Convergence { until, first: None, lowest: [f64::INFINITY; 2], without_progress: 0, without_move: 0 };
            let (mut steps, mut last) = (0, None);
            let (stop, value, gradient_norm) = loop {
                memory.evaluate_at(params)?;
                let (value, print) = (memory.eval_cache.here.value, memory.eval_cache.here.fingerprint);
                let (gradient_norm, evaluations) = (memory.gradient_norm(params), memory.evaluations);
                let progress = Progress { params: &*params, steps, evaluations, value, gradient_norm };
                let stopped_by_callback = callback.as_mut().is_some_and(|callback| callback(&progress).is_break());
                if let Some(stop) = course.stop_reason(&progress, last, stopped_by_callback) {
                    break (stop, value, gradient_norm);
                }
                let before = course.until.measures_steps().then(|| params.clone());
                let outcome = memory.step(transformation, params, state)?;
                steps += 1;
                let moved = memory.eval_cache.here.fingerprint != print;
                let mut step = Step { from: value, length: f64::INFINITY, moved };
                if let Some(mut before) = before {
                    tree_add_scaled(&mut before, -1.0, params)?;
                    step.length = tree_norm(&before);
                }
                last = outcome.emitted().then_some(step);
            };
            let evaluations = memory.evaluations;
            state.eval_cache = Some(memory.eval_cache);
            Ok(Report { steps, evaluations, value, gradient_norm, stop })
        })
    }
}

impl<T: GradientTransformation, P, F> fmt::Debug for Minimization<'_, T, P, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Minimization { transformation, until, bounds, .. } = self;
        f.debug_struct("Minimization")
            .field("transformation", transformation)
            .field("until", until)
            .field("bounds", bounds)
            .finish_non_exhaustive()
    }
}

/// A step that emitted updates.
#[derive(Clone, Copy)]
struct Step {
    /// The value before the step.
    from: f64,
    length: f64,
    moved: bool,
}

struct Convergence {
    until: Until,
    /// The norm of the initial gradient.
    first: Option<f64>,
    /// The lowest value and gradient norm so far.
    lowest: [f64; 2],
    /// Steps since either improved.
    without_progress: usize,
    /// Steps since the parameters moved.
    without_move: usize,
}

impl Convergence {
    fn stop_reason<P: TreeMut>(
        &mut self,
        at: &Progress<'_, P>,
        last: Option<Step>,
        stopped_by_callback: bool,
    ) -> Option<Stop> {
        let Until { gradient_atol, gradient_rtol, value_atol, value_rtol, step_atol, step_rtol, .. } = self.until;
        let first = *self.first.get_or_insert(at.gradient_norm);
        self.count(at, last);
        let moved = last.filter(|step| step.moved);
        let reasons = [
            (Stop::NotFinite, !at.value.is_finite() || !at.gradient_norm.is_finite()),
            (Stop::Gradient, at.gradient_norm <= gradient_atol + gradient_rtol * first),
            (Stop::Value, moved.is_some_and(|s| (s.from - at.value).abs() < value_atol + value_rtol * at.value.abs())),
            (Stop::Step, moved.is_some_and(|s| s.length < step_atol + step_rtol * tree_norm(at.params))),
            (Stop::Callback, stopped_by_callback),
            (Stop::MaxSteps, at.steps >= self.until.max_steps),
            (Stop::MaxEvaluations, at.evaluations >= self.until.max_evaluations),
            (
                Stop::Stalled,
                self.without_progress >= self.until.patience || self.without_move >= MAX_STEPS_WITHOUT_MOVE,
            ),
        ];
        reasons.into_iter().find_map(|(stop, holds)| holds.then_some(stop))
    }

    fn count<P>(&mut self, at: &Progress<'_, P>, last: Option<Step>) {
        let [value, norm] = self.lowest;
        if let Some(step) = last {
            self.without_progress =
                if at.value < value || at.gradient_norm < norm { 0 } else { self.without_progress + 1 };
            self.without_move = if step.moved { 0 } else { self.without_move + 1 };
        }
        self.lowest = [value.min(at.value), norm.min(at.gradient_norm)];
    }
}

/// Adapts a fallible function to the crate's errors, and restores its own.
pub(super) fn fallible<P, F, R, A>(
    mut f: F,
    work: impl FnOnce(&mut dyn FnMut(&P, Option<GradientSink<'_>>) -> Result<f64>) -> Result<A>,
) -> Result<A, R::Error>
where
    F: FnMut(&P) -> R,
    R: Evaluated,
{
    let failed = Cell::new(None);
    let done = work(&mut |point, to| match f(point).into_result() {
        Ok(evaluated) => deliver(evaluated, to),
        Err(error) => {
            failed.set(Some(error));
            Err(Error::state("minimize", "the function failed"))
        }
    });
    done.map_err(|error| failed.take().unwrap_or_else(|| error.into()))
}
