use super::linesearch::{Point, ScaleUpdates, TreeLine, Zoom};
use crate::internal::recipe::words;
use crate::internal::state::state_fields;
use crate::needs;
use crate::part::prelude::*;

/// Multiplies the updates by a step size that satisfies the strong Wolfe conditions.
///
/// These are a sufficient decrease (Armijo) and the curvature condition.
///
/// Quasi-Newton methods such as [`scale_by_lbfgs`](crate::transform::scale_by_lbfgs), which learn from the change of
/// the slope, need this search. Put it last: a later stage would change the step that was tried.
///
/// Needs the feature `minimize`.
///
/// # Arithmetic
///
/// With parameters `w`, updates `u`, the loss `f`, the gradient `g` that the step was given, `φ(t) = f(w + t·u)` and
/// `φ′(0) = ⟨g, u⟩`, a step size `t` is searched such that
///
/// ```text
/// φ(t) ≤ φ(0) + slope_rtol·t·φ′(0) + tol     or     φ′(t) ≤ (2·slope_rtol − 1)·φ′(0) + tol,
///                                                   where φ(t) ≤ φ(0) + approx_dec_rtol·|φ(0)| + tol
/// |φ′(t)| ≤ curv_rtol·|φ′(0)| + tol
/// ```
///
/// The second form of the first condition is for the neighbourhood of a minimum, where rounding dominates differences
/// of `φ` but not its slope. The search first multiplies `t` by `increase_factor` until two tried points bracket an
/// acceptable one. It then narrows that interval, at the minimum of a cubic, of a parabola, or in the middle.
///
/// The search ends early after `max_linesearch_steps` evaluations, at `max_learning_rate`, or once the interval is
/// shorter than `stepsize_precision`. It then takes the point of lowest loss at which the first condition holds;
/// failing that, the last point, if the loss is lower there; otherwise `t` is 0 and the updates are zero, whatever they
/// were. The state records the violations. All computations on `t` are in `f64`, sums over elements too; the loss is
/// evaluated at the parameters that the step leads to, rounded to their dtypes.
///
/// # Cost
///
/// One float of state per parameter, the gradient where the search ended, and scratch space for two. One more pass;
/// reads parameters. `1` to `max_linesearch_steps` evaluations of loss and gradient, usually one with L-BFGS.
///
/// # Errors
///
/// `init` fails if an argument is out of its range.
///
/// # Example
///
/// On `w²/2` from 2, an eighth of the gradient is too short a step; the search tries twice, four and eight times that
/// step, until the slope is at most a tenth of the initial one:
///
/// ```
/// use gradchain::extra;
/// use gradchain::prelude::*;
/// use gradchain::transform::scale_by_zoom_linesearch;
///
/// let loss = |w: &f64| (w * w / 2.0, *w);
/// let optimizer = chain((sgd(0.125), scale_by_zoom_linesearch(20).curv_rtol(0.1)));
/// let mut w = 2.0_f64;
/// let mut state = optimizer.init(&w)?;
/// optimizer.step_with(&mut w, &2.0, extra::value_and_grad_fn(2.0, loss), &mut state)?;
/// assert_eq!(w, 0.0);
/// assert_eq!(state.1.learning_rate.get(), 8.0);
/// assert_eq!(state.1.info.num_linesearch_steps.get(), 4); // 1, 2, 4, 8
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Nocedal and Wright, [Numerical Optimization](https://doi.org/10.1007/978-0-387-40065-5), 1999, algorithms 3.5 and
/// 3.6; Hager and Zhang, [Algorithm 851: CG_DESCENT](https://doi.org/10.1145/1132973.1132979), 2006, for the
/// approximate condition. Optax,
/// [`scale_by_zoom_linesearch`](https://optax.readthedocs.io/en/latest/api/transformations.html). Differs: a search
/// that finds no lower point does not step, where Optax goes to the last point however high; after that the next one
/// starts from 1, where Optax stays at 0 forever; a loss of −∞ is not accepted; the errors in the state are those of
/// the point taken, where Optax has those of the point tried last;
/// [`interpolation`](ScaleByZoomLinesearch::interpolation) can be by slopes, as in Nocedal and Wright's equation 3.59.
pub fn scale_by_zoom_linesearch(max_linesearch_steps: usize) -> ScaleByZoomLinesearch {
    ScaleByZoomLinesearch::with(max_linesearch_steps)
}

part! {
    /// See [`scale_by_zoom_linesearch`].
    pub ScaleByZoomLinesearch as "scale_by_zoom_linesearch": Whole<needs::ValueAndGradFn>, FINAL_LENGTH;
    given {
        /// Largest number of points tried.
        max_linesearch_steps: usize, AT_LEAST_1;
    }
    hyperparams {
        /// Tolerated violation of the conditions.
        tol: NOT_NEGATIVE = 0.0;
        /// Factor of a step that is too short.
        increase_factor: ABOVE_1 = 2.0;
        /// Required fraction of the decrease that the slope predicts.
        slope_rtol: DECAY = 1e-4;
        /// Accepted fraction of the initial slope; infinite to accept any.
        curv_rtol: AT_LEAST_0 = 0.9;
        /// Length below which an interval is not narrowed further.
        stepsize_precision: NOT_NEGATIVE = 1e-5;
    }
    options {
        /// Longest step, if limited.
        max_learning_rate: Option<f64> = None, ABOVE_0;
        /// Distance from the first value, as a fraction of it, for the approximate condition; `None` to disable it.
        approx_dec_rtol: Option<f64> = Some(1e-6), AT_LEAST_0;
        /// The first step size of a search.
        initial_guess_strategy: InitialGuess = InitialGuess::Keep;
        /// The interpolation inside an interval.
        interpolation: Interpolation = Interpolation::Values;
    }
}

/// The first step size of [`scale_by_zoom_linesearch`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum InitialGuess {
    /// 1, for directions with a natural length, such as those of L-BFGS.
    One,
    /// The step size of the last step, for plain gradients.
    #[default]
    Keep,
}

impl InitialGuess {
    /// Returns the strategy named `one` or `keep`.
    pub fn from_name(name: &str) -> Option<InitialGuess> {
        match name {
            "one" => Some(InitialGuess::One),
            "keep" => Some(InitialGuess::Keep),
            _ => None,
        }
    }
}

/// The interpolation of [`scale_by_zoom_linesearch`]: the next point is the minimum of a cubic, if well inside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Interpolation {
    /// A cubic through the values at both ends and at a third point, with the slope at the lower end, as in Optax.
    #[default]
    Values,
    /// A cubic through values and slopes at both ends; takes fewer evaluations.
    Slopes,
}

words!(Interpolation { Values = "values", Slopes = "slopes" });
words!(InitialGuess { One = "one", Keep = "keep" });

/// The state of [`scale_by_zoom_linesearch`].
#[derive(Clone, Debug)]
pub struct ScaleByZoomLinesearchState {
    /// Steps done.
    pub count: Count,
    /// The step size of the last step.
    pub learning_rate: Scalar,
    /// The loss after the last step; infinite before the first.
    pub value: Scalar,
    /// The gradient after the last step.
    pub grad: Moments,
    /// Statistics of the last search.
    pub info: ZoomLinesearchInfo,
    point: Moments,
    last: Moments,
}

/// Statistics of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct ZoomLinesearchInfo {
    /// Evaluations of loss and gradient.
    pub num_linesearch_steps: Count,
    /// Excess of the loss over the accepted value, at the step taken; infinite if none was.
    pub decrease_error: Scalar,
    /// Excess of the slope over the accepted one, at the step taken; infinite if none was.
    pub curvature_error: Scalar,
}

state_fields!(ZoomLinesearchInfo { num_linesearch_steps, decrease_error, curvature_error });

state_fields!(ScaleByZoomLinesearchState { count, learning_rate, value, grad, info });

impl WholeTreeTransformation for ScaleByZoomLinesearch {
    const SCOPE: Scope = Scope::TREE.reads_params();
    type State = ScaleByZoomLinesearchState;

    fn start(&self, at: &InitContext<'_>) -> Result<ScaleByZoomLinesearchState> {
        let infinite = Scalar::new(f64::INFINITY);
        Ok(ScaleByZoomLinesearchState {
            count: Count::default(),
            learning_rate: Scalar::new(1.0),
            value: infinite,
            grad: at.moments()?,
            info: ZoomLinesearchInfo {
                num_linesearch_steps: Count::default(),
                decrease_error: infinite,
                curvature_error: infinite,
            },
            point: at.moments()?,
            last: at.moments()?,
        })
    }

    fn transform(&self, state: &mut ScaleByZoomLinesearchState, at: &StepContext<'_>, tree: &mut WholeTree<'_>) {
        let count = state.count.get();
        state.count.increment();
        // A flushed window of mini-steps has no loss and reuses the last step size.
        let (true, Some(value)) = (tree.has_objective(), at.value()) else {
            return tree.visit(&mut ScaleUpdates { t: state.learning_rate.get(), bounds: None });
        };
        let search = Zoom {
            max_linesearch_steps: self.max_linesearch_steps,
            max_learning_rate: self.max_learning_rate,
            tol: self.tol.at(count),
            increase_factor: self.increase_factor.at(count),
            slope_rtol: self.slope_rtol.at(count),
            curv_rtol: self.curv_rtol.at(count),
            approx_dec_rtol: self.approx_dec_rtol,
            stepsize_precision: self.stepsize_precision.at(count),
            interpolation: self.interpolation,
        };
        let guess = match self.initial_guess_strategy {
            InitialGuess::One => 1.0,
            InitialGuess::Keep => state.learning_rate.get(),
        };
        let gradients = Some([&mut state.last, &mut state.grad]);
        let mut line = TreeLine::new(tree, &mut state.point, gradients);
        let slope = line.first_slope();
        let found = search.search(&mut line, Point::start(value, slope), guess);
        line.finish(found.t);
        state.learning_rate.set(found.t);
        state.value.set(found.value);
        state.info.num_linesearch_steps = Count::new(found.evaluations);
        state.info.decrease_error.set(found.decrease_error);
        state.info.curvature_error.set(found.curvature_error);
    }
}
