use super::linesearch::{Point, Stretch, TreeLine, Zoom};
use crate::needs;
use crate::part::prelude::*;
use crate::recipe::words;

/// Multiplies the updates by a step size that satisfies the strong Wolfe conditions: the loss decreases by enough, and
/// its slope along the updates becomes flat enough.
///
/// It is what quasi-Newton methods such as [`scale_by_lbfgs`](crate::transform::scale_by_lbfgs) need, which learn from
/// how the slope changes. Put it last: what comes after it would change the step that was tried.
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
/// The second form of the first condition is for the neighbourhood of a minimum, where differences of `φ` are rounding
/// errors and its slope is not. First `t` is multiplied by `increase_factor` until there must be such a point between
/// two that were tried. Then that interval is narrowed down, at the minimum of a cubic, of a parabola, or in the
/// middle.
///
/// The search ends early after `max_linesearch_steps` evaluations, at `max_learning_rate`, or once the interval is
/// shorter than `stepsize_precision`. Then the point of the lowest loss at which the first condition holds is taken, or
/// if there is none the last point, if the loss is at least lower there: otherwise `t` is 0, and the updates are zero,
/// whatever they were. What was violated is in the state. Everything about `t` is in `f64`, sums over elements too; the
/// loss is evaluated at the parameters that the step leads to, rounded to their types.
///
/// # Cost
///
/// One float of state for each parameter, the gradient where the search ended, and two of room. One more pass; reads
/// parameters. `1` to `max_linesearch_steps` evaluations of loss and gradient, usually one with L-BFGS.
///
/// # Errors
///
/// `init` fails if an argument is out of its range.
///
/// # Example
///
/// On `w²/2` from 2, the gradient is the way to the minimum, but a tenth of it is short of it; steps of twice, four and
/// eight times that are tried, until one has a slope of a tenth of the first:
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
/// starts from 1, where Optax stays at 0 for good; a loss of −∞ is not accepted; the errors in the state are those of
/// the point taken, where Optax has those of the point tried last;
/// [`interpolation`](ScaleByZoomLinesearch::interpolation) can be by slopes, as in Nocedal and Wright's equation 3.59.
pub fn scale_by_zoom_linesearch(max_linesearch_steps: usize) -> ScaleByZoomLinesearch {
    ScaleByZoomLinesearch::with(max_linesearch_steps)
}

part! {
    /// See [`scale_by_zoom_linesearch`].
    pub ScaleByZoomLinesearch as "scale_by_zoom_linesearch": Whole<needs::ValueAndGradFn>, SETTLED;
    given {
        /// How many points are tried at most.
        max_linesearch_steps: usize, AT_LEAST_1;
    }
    hyperparams {
        /// By how much the conditions may be violated.
        tol: NOT_NEGATIVE = 0.0;
        /// What a step that is too short is multiplied by.
        increase_factor: ABOVE_1 = 2.0;
        /// Which part of the decrease that the slope promises there must be.
        slope_rtol: DECAY = 1e-4;
        /// Which part of the slope may be left; infinite to accept any.
        curv_rtol: AT_LEAST_0 = 0.9;
        /// How short an interval is not worth narrowing further.
        stepsize_precision: NOT_NEGATIVE = 1e-5;
    }
    options {
        /// How long a step may be, if there is a limit.
        max_learning_rate: Option<f64> = None, ABOVE_0;
        /// How near to the first value the approximate condition is used, as a part of it; `None` not to use it.
        approx_dec_rtol: Option<f64> = Some(1e-6), AT_LEAST_0;
        /// Where a search begins.
        initial_guess_strategy: InitialGuess = InitialGuess::Keep;
        /// How the next point inside an interval is guessed.
        interpolation: Interpolation = Interpolation::Values;
    }
}

/// Where a [`scale_by_zoom_linesearch`] begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum InitialGuess {
    /// At 1: for directions that know their length, such as those of L-BFGS.
    One,
    /// At the step size of the last step: for plain gradients.
    #[default]
    Keep,
}

impl InitialGuess {
    /// The strategy of this name, if there is one: `one`, `keep`.
    pub fn from_name(name: &str) -> Option<InitialGuess> {
        match name {
            "one" => Some(InitialGuess::One),
            "keep" => Some(InitialGuess::Keep),
            _ => None,
        }
    }
}

/// How [`scale_by_zoom_linesearch`] guesses the next point inside an interval: at the minimum of a cubic, if that is
/// well inside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Interpolation {
    /// Through the values at both ends and at a third point, with the slope at the lower end, as Optax does.
    #[default]
    Values,
    /// Through values and slopes at both ends, which takes fewer evaluations.
    Slopes,
}

words!(Interpolation { Values = "values", Slopes = "slopes" });
words!(InitialGuess { One = "one", Keep = "keep" });

/// What [`scale_by_zoom_linesearch`] remembers.
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
    /// How the last search went.
    pub info: ZoomLinesearchInfo,
    /// Room for a point and the gradient there.
    point: Moments,
    last: Moments,
}

/// How a search went.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct ZoomLinesearchInfo {
    /// Evaluations of loss and gradient.
    pub num_linesearch_steps: Count,
    /// By how much the loss is higher than it should be, at the step taken; infinite if none was.
    pub decrease_error: Scalar,
    /// By how much the slope is steeper than it should be, at the step taken; infinite if none was.
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
        // A window of mini-steps that is flushed comes without a loss; it goes as far as the last step did.
        let (true, Some(value)) = (tree.has_objective(), at.value()) else {
            return tree.visit(&mut Stretch { t: state.learning_rate.get(), bounds: None });
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
