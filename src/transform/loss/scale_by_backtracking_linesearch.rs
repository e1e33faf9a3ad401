use super::linesearch::{Backtracking, Point, ScaleUpdates, TreeLine};
use crate::internal::state::state_fields;
use crate::needs;
use crate::part::prelude::*;

/// Multiplies the updates by a step size with sufficient decrease of the loss, found by backtracking.
///
/// Put it last: a later stage would change the step that was tried. The updates must be a descent direction, as those
/// of [`sgd`](crate::sgd()) are; those of [`adam`](crate::adam()) need not be one.
///
/// Needs the feature `minimize`.
///
/// # Arithmetic
///
/// With parameters `w`, updates `u`, the loss `f` and the gradient `g` that the step was given:
///
/// ```text
/// t ← min(increase_factor·t, max_learning_rate)          t of the last step; 1 at first, and where the last t was 0
/// until f(w + t·u) ≤ f(w) + rtol·|f(w)| + slope_rtol·t·⟨g, u⟩ + atol:   t ← decrease_factor·t
/// u ← t·u
/// ```
///
/// After `max_backtracking_steps + 1` evaluations the search takes the last `t`, and `decrease_error` in the state is
/// positive. If the loss there is not finite, or the slope at the start was not negative, `t` is 0 and the updates are
/// zero, whatever they were. All computations on `t` are in `f64`, sums over elements too; the loss is evaluated at the
/// parameters that the step leads to, rounded to their dtypes.
///
/// # Cost
///
/// Scratch space for one float per parameter. One more pass; reads parameters. `1` to `max_backtracking_steps + 1`
/// evaluations of the loss, usually one.
///
/// # Errors
///
/// `init` fails if an argument is out of its range.
///
/// # Example
///
/// On `w²/2` from 2, a step of 4 times the gradient goes to −6, where the loss is higher; half of it to −2, where it is
/// not lower; a quarter of it to 0:
///
/// ```
/// use gradchain::extra;
/// use gradchain::prelude::*;
/// use gradchain::transform::scale_by_backtracking_linesearch;
///
/// let loss = |w: &f64| w * w / 2.0;
/// let optimizer = chain((sgd(4.0), scale_by_backtracking_linesearch(10).decrease_factor(0.5)));
/// let mut w = 2.0_f64;
/// let mut state = optimizer.init(&w)?;
/// optimizer.step_with(&mut w, &2.0, extra::value_fn(2.0, loss), &mut state)?;
/// assert_eq!(w, 0.0);
/// assert_eq!(state.1.learning_rate.get(), 0.25);
/// assert_eq!(state.1.info.num_linesearch_steps.get(), 3);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Armijo, [Minimization of functions having Lipschitz continuous first partial
/// derivatives](https://doi.org/10.2140/pjm.1966.16.1), 1966; Vaswani and others, [Painless stochastic gradient:
/// interpolation, line-search, and convergence rates](https://arxiv.org/abs/1905.09997), 2019. Optax,
/// [`scale_by_backtracking_linesearch`](https://optax.readthedocs.io/en/latest/api/transformations.html). Differs:
/// after a search that ended at 0 the next one starts from 1, where Optax stays at 0 forever; a loss of −∞ is not
/// accepted; `rtol` is a fraction of the loss's size, where Optax's `(1 + rtol)·f(w)` requires a negative loss to fall
/// by that fraction; after a search that ended at 0 the state has the value of the unchanged parameters; no
/// `store_grad`, since [`minimize_step`](crate::Minimize::minimize_step) keeps the gradient of what it evaluates.
pub fn scale_by_backtracking_linesearch(max_backtracking_steps: usize) -> ScaleByBacktrackingLinesearch {
    ScaleByBacktrackingLinesearch::with(max_backtracking_steps)
}

part! {
    /// See [`scale_by_backtracking_linesearch`].
    pub ScaleByBacktrackingLinesearch as "scale_by_backtracking_linesearch": Whole<needs::ValueFn>, FINAL_LENGTH;
    given {
        /// Largest number of times that the step is shortened.
        max_backtracking_steps: usize;
    }
    hyperparams {
        /// Required fraction of the decrease that the slope predicts.
        slope_rtol: DECAY = 1e-4;
        /// Factor of a step that is too long.
        decrease_factor: OPEN_UNIT_INTERVAL = 0.8;
        /// Factor of the last step for the first guess; infinite to start at the maximum.
        increase_factor: ABOVE_0 = 1.5;
        /// Longest step.
        max_learning_rate: POSITIVE = 1.0;
        /// Tolerated increase of the loss.
        atol: NOT_NEGATIVE = 0.0;
        /// Tolerated increase of the loss, as a fraction of its size.
        rtol: NOT_NEGATIVE = 0.0;
    }
    check Self::check_steps;
}

/// The state of [`scale_by_backtracking_linesearch`].
#[derive(Clone, Debug)]
pub struct ScaleByBacktrackingLinesearchState {
    /// Steps done.
    pub count: Count,
    /// The step size of the last step.
    pub learning_rate: Scalar,
    /// The loss after the last step; infinite before the first.
    pub value: Scalar,
    /// Statistics of the last search.
    pub info: BacktrackingLinesearchInfo,
    point: Moments,
}

/// Statistics of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct BacktrackingLinesearchInfo {
    /// Evaluations of the loss.
    pub num_linesearch_steps: Count,
    /// Excess of the loss over the accepted value, at the last step tried; infinite if the loss was not finite.
    pub decrease_error: Scalar,
}

state_fields!(BacktrackingLinesearchInfo { num_linesearch_steps, decrease_error });

state_fields!(ScaleByBacktrackingLinesearchState { count, learning_rate, value, info } scratch { point });

impl ScaleByBacktrackingLinesearch {
    fn check_steps(&self) -> Result<()> {
        match self.max_backtracking_steps {
            most @ usize::MAX => Err(Error::argument(Self::NAME, "max_backtracking_steps", "a smaller number", most)),
            _ => Ok(()),
        }
    }
}

impl WholeTreeTransformation for ScaleByBacktrackingLinesearch {
    const SCOPE: Scope = Scope::TREE.reads_params();
    type State = ScaleByBacktrackingLinesearchState;

    fn start(&self, at: &InitContext<'_>) -> Result<ScaleByBacktrackingLinesearchState> {
        Ok(ScaleByBacktrackingLinesearchState {
            count: Count::default(),
            learning_rate: Scalar::new(1.0),
            value: Scalar::new(f64::INFINITY),
            info: BacktrackingLinesearchInfo {
                num_linesearch_steps: Count::default(),
                decrease_error: Scalar::new(f64::INFINITY),
            },
            point: at.moments()?,
        })
    }

    fn transform(
        &self,
        state: &mut ScaleByBacktrackingLinesearchState,
        at: &StepContext<'_>,
        tree: &mut WholeTree<'_>,
    ) {
        let count = state.count.get();
        state.count.increment();
        // A flushed window of mini-steps has no loss and reuses the last step size.
        let (true, Some(value)) = (tree.has_objective(), at.value()) else {
            return tree.visit(&mut ScaleUpdates { t: state.learning_rate.get(), bounds: None });
        };
        let search = Backtracking {
            max_backtracking_steps: self.max_backtracking_steps,
            slope_rtol: self.slope_rtol.at(count),
            decrease_factor: self.decrease_factor.at(count),
            increase_factor: self.increase_factor.at(count),
            max_learning_rate: self.max_learning_rate.at(count),
            atol: self.atol.at(count),
            rtol: self.rtol.at(count),
        };
        let mut line = TreeLine::new(tree, &mut state.point, None);
        let slope = line.first_slope();
        let found = search.search(&mut line, Point::start(value, slope), state.learning_rate.get());
        line.finish(found.t);
        state.learning_rate.set(found.t);
        state.value.set(found.value);
        state.info.num_linesearch_steps = Count::new(found.evaluations);
        state.info.decrease_error.set(found.decrease_error);
    }
}
