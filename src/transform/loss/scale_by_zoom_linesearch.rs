use super::linesearch::{Point, Stretch, TreeLine, Zoom};
use crate::engine::{InitContext, StepContext, WholeTree};
use crate::error::{Error, Result};
use crate::macros::builder;
use crate::needs;
use crate::recipe::{Recipe, ToRecipe};
use crate::schedule::Hyperparam;
use crate::state::{Count, Moments, Scalar, state_fields};

/// Multiplies the updates by a step size that satisfies the strong Wolfe conditions: the loss decreases by enough, and its
/// slope along the updates becomes flat enough.
///
/// It is what quasi-Newton methods such as [`scale_by_lbfgs`](crate::scale_by_lbfgs) need, which learn from how the slope
/// changes. Put it last: what comes after it would change the step that was tried.
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
/// errors and its slope is not. First `t` is multiplied by `increase_factor` until there must be such a point between two
/// that were tried. Then that interval is narrowed down, at the minimum of a cubic, of a parabola, or in the middle.
///
/// The search ends early after `max_linesearch_steps` evaluations, at `max_learning_rate`, or once the interval is shorter
/// than `stepsize_precision`. Then the point of the lowest loss at which the first condition holds is taken, or if there
/// is none the last point, if the loss is at least lower there: otherwise `t` is 0, and the updates are zero, whatever
/// they were. What was violated is in the state. Everything about `t` is in `f64`, sums over elements too; the loss is evaluated
/// at the parameters that the step leads to, rounded to their types.
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
/// Nocedal and Wright, [Numerical Optimization](https://doi.org/10.1007/978-0-387-40065-5), 1999, algorithms 3.5 and 3.6;
/// Hager and Zhang, [Algorithm 851: CG_DESCENT](https://doi.org/10.1145/1132973.1132979), 2006, for the approximate
/// condition. Optax, [`scale_by_zoom_linesearch`](https://optax.readthedocs.io/en/latest/api/transformations.html). Differs:
/// a search that finds no lower point does not step, where Optax goes to the last point however high; after that the next
/// one starts from 1, where Optax stays at 0 for good; a loss of −∞ is not accepted; the errors in the state are those of the point taken, where Optax has those of the point tried last;
/// [`interpolation`](ScaleByZoomLinesearch::interpolation) can be by slopes, as in Nocedal and Wright's equation 3.59.
pub fn scale_by_zoom_linesearch(max_linesearch_steps: usize) -> ScaleByZoomLinesearch {
    ScaleByZoomLinesearch {
        max_linesearch_steps,
        max_learning_rate: None,
        tol: 0.0.into(),
        increase_factor: 2.0.into(),
        slope_rtol: 1e-4.into(),
        curv_rtol: 0.9.into(),
        approx_dec_rtol: Some(1e-6),
        stepsize_precision: 1e-5.into(),
        initial_guess_strategy: InitialGuess::Keep,
        interpolation: Interpolation::Values,
    }
}

/// See [`scale_by_zoom_linesearch`].
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a transformation does nothing until it is given gradients"]
pub struct ScaleByZoomLinesearch {
    /// How many points are tried at most; at least 1.
    pub max_linesearch_steps: usize,
    /// How long a step may be, if there is a limit; positive.
    pub max_learning_rate: Option<f64>,
    /// By how much the conditions may be violated; not negative.
    pub tol: Hyperparam,
    /// What a step that is too short is multiplied by; more than 1.
    pub increase_factor: Hyperparam,
    /// Which part of the decrease that the slope promises there must be; in `[0, 1)`.
    pub slope_rtol: Hyperparam,
    /// Which part of the slope may be left; not negative, and infinite to accept any.
    pub curv_rtol: Hyperparam,
    /// How near to the first value the approximate condition is used, as a part of it; `None` not to use it.
    pub approx_dec_rtol: Option<f64>,
    /// How short an interval is not worth narrowing further; not negative.
    pub stepsize_precision: Hyperparam,
    /// Where a search begins.
    pub initial_guess_strategy: InitialGuess,
    /// How the next point inside an interval is guessed.
    pub interpolation: Interpolation,
}

builder! {
    ScaleByZoomLinesearch as "scale_by_zoom_linesearch" {
        hyperparams: tol, increase_factor, slope_rtol, curv_rtol, stepsize_precision;
        options: max_learning_rate: Option<f64>, approx_dec_rtol: Option<f64>, initial_guess_strategy: InitialGuess,
            interpolation: Interpolation;
        integers: max_linesearch_steps: usize;
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

/// How [`scale_by_zoom_linesearch`] guesses the next point inside an interval: at the minimum of a cubic, if that is well
/// inside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Interpolation {
    /// Through the values at both ends and at a third point, with the slope at the lower end, as Optax does.
    #[default]
    Values,
    /// Through values and slopes at both ends, which takes fewer evaluations.
    Slopes,
}

impl Interpolation {
    /// The kind of this name, if there is one: `values`, `slopes`.
    pub fn from_name(name: &str) -> Option<Interpolation> {
        match name {
            "values" => Some(Interpolation::Values),
            "slopes" => Some(Interpolation::Slopes),
            _ => None,
        }
    }
}

impl ToRecipe for Interpolation {
    fn to_recipe(&self) -> Recipe {
        Recipe::text(match self {
            Interpolation::Values => "values",
            Interpolation::Slopes => "slopes",
        })
    }
}

impl ToRecipe for InitialGuess {
    fn to_recipe(&self) -> Recipe {
        Recipe::text(match self {
            InitialGuess::One => "one",
            InitialGuess::Keep => "keep",
        })
    }
}

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
pub struct ZoomLinesearchInfo {
    /// Evaluations of loss and gradient.
    pub num_linesearch_steps: Count,
    /// By how much the loss is higher than it should be, at the step taken; infinite if none was.
    pub decrease_error: Scalar,
    /// By how much the slope is steeper than it should be, at the step taken; infinite if none was.
    pub curvature_error: Scalar,
}

state_fields!(ZoomLinesearchInfo<> { num_linesearch_steps, decrease_error, curvature_error });

state_fields!(ScaleByZoomLinesearchState<> { count, learning_rate, value, grad, info });

impl crate::engine::Part for ScaleByZoomLinesearch {
    const NAME: &'static str = "scale_by_zoom_linesearch";
    type Form = crate::engine::Whole;

    fn validate(&self) -> Result<()> {
        let not_negative = |x: f64| x >= 0.0 && x.is_finite();
        let option = |argument, value: Option<f64>, expected, fits: fn(f64) -> bool| match value {
            Some(x) if !fits(x) => Err(Error::argument(Self::NAME, argument, expected, x)),
            _ => Ok(()),
        };
        if self.max_linesearch_steps == 0 {
            return Err(Error::argument(Self::NAME, "max_linesearch_steps", "at least 1", 0));
        }
        option("max_learning_rate", self.max_learning_rate, "positive", |x| x > 0.0)?;
        self.tol.validate(Self::NAME, "tol", "finite and not negative", not_negative)?;
        self.increase_factor
            .validate(Self::NAME, "increase_factor", "finite and more than 1", |x| x > 1.0 && x.is_finite())?;
        self.slope_rtol.validate(Self::NAME, "slope_rtol", "in [0, 1)", |x| (0.0..1.0).contains(&x))?;
        self.curv_rtol.validate(Self::NAME, "curv_rtol", "not negative", |x| x >= 0.0)?;
        option("approx_dec_rtol", self.approx_dec_rtol, "not negative", |x| x >= 0.0)?;
        self.stepsize_precision.validate(Self::NAME, "stepsize_precision", "finite and not negative", not_negative)
    }

    crate::arguments::recipe_of_arguments!();
}

impl crate::engine::WholeTreeTransformation for ScaleByZoomLinesearch {
    const READS_PARAMS: bool = true;
    type State = ScaleByZoomLinesearchState;
    type Needs = needs::ValueAndGradFn;

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
            return tree.visit(&mut Stretch(state.learning_rate.get()));
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
        let mut line = TreeLine { tree, point: &mut state.point, gradients };
        let slope = line.first_slope();
        let found = search.search(&mut line, Point { t: 0.0, value, slope }, guess);
        tree.visit(&mut Stretch(found.t));
        state.learning_rate.set(found.t);
        state.value.set(found.value);
        state.info.num_linesearch_steps = Count::new(found.evaluations);
        state.info.decrease_error.set(found.decrease_error);
        state.info.curvature_error.set(found.curvature_error);
    }
}
