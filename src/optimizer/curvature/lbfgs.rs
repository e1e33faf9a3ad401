use crate::GradientTransformation;
use crate::recipe::Recipe;
use crate::transform::*;

/// L-BFGS: a quasi-Newton method for smooth losses and full-batch gradients.
///
/// A line search finds the length of each step, so a step needs the loss and its gradient as a function;
/// [`minimize`](crate::Minimize::minimize) passes them. [`without_linesearch`](Lbfgs::without_linesearch) needs only
/// gradients and takes the full step of length `learning_rate`, which is right near a minimum and for convex losses
/// close to quadratic.
///
/// Needs the feature `minimize`.
///
/// # Arithmetic
///
/// ```text
/// chain(
///     scale_by_lbfgs(memory_size, scale_init_precond),
///     scale_by_learning_rate(learning_rate),
///     scale_by_zoom_linesearch(20, initial_guess_strategy = one, increase_factor = 4, interpolation = slopes),
/// )
/// ```
///
/// Defaults: `memory_size` 10, `scale_init_precond` true, `learning_rate` 1, which is also the first guess of the line
/// search.
///
/// To keep parameters within [`bounds`](crate::minimize::Minimization::bounds), pass them to `minimize`.
///
/// # Cost
///
/// `2·memory_size + 2` floats of state per parameter and two passes; with the line search 3 floats more, another pass,
/// and one evaluation of the loss or a few.
///
/// # Errors
///
/// `init` fails if `memory_size` is 0 or the learning rate is not finite.
///
/// # Example
///
/// Rosenbrock's function, down its curved valley to the minimum at (1, 1):
///
/// ```
/// use gradchain::prelude::*;
///
/// let rosenbrock = |&[x, y]: &[f64; 2]| {
///     let (a, b) = (1.0 - x, y - x * x);
///     (a * a + 100.0 * b * b, [-2.0 * a - 400.0 * b * x, 200.0 * b])
/// };
/// let optimizer = lbfgs();
/// let mut params = [-1.2, 1.0];
/// let mut state = optimizer.init(&params)?;
/// let report = optimizer.minimize(&mut params, rosenbrock, &mut state).gradient_atol(1e-10).max_steps(100).run()?;
/// assert!(report.converged() && report.evaluations < 60);
/// assert!((params[0] - 1.0).abs() < 1e-10 && (params[1] - 1.0).abs() < 1e-10);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Liu and Nocedal, [On the limited memory BFGS method for large scale
/// optimization](https://doi.org/10.1007/BF01589116), 1989. Optax,
/// [`lbfgs`](https://optax.readthedocs.io/en/latest/api/optimizers.html). Differs: the line search interpolates by
/// slopes, and extends a step that is too short four times instead of twice, which takes fewer evaluations;
/// `docs/curvature.md` counts them. PyTorch's `LBFGS` calls back into the loss several times in a step, and has no line
/// search by default.
pub fn lbfgs() -> Lbfgs {
    let search = scale_by_zoom_linesearch(20)
        .initial_guess_strategy(InitialGuess::One)
        .increase_factor(4.0)
        .interpolation(Interpolation::Slopes);
    Lbfgs { chain: (scale_by_lbfgs(), scale_by_learning_rate(1.0), search) }
}

optimizer! {
    /// See [`lbfgs`](lbfgs()).
    #[derive(PartialEq)]
    Lbfgs<L: GradientTransformation = ScaleByZoomLinesearch> as "lbfgs" = (ScaleByLbfgs, ScaleByLearningRate, L) {
        hyperparams:
            learning_rate [1.learning_rate]
                "Sets the learning rate: the step size, or the initial one of the line search.";
        options:
            scale_init_precond: bool [0.scale_init_precond]
                "Sets whether the estimate of the inverse Hessian starts from a scaled identity.";
        integers:
            memory_size: usize [0.memory_size] "Sets the number of stored differences; at least 1.";
        shown: linesearch |it| it.linesearch_recipe();
    }
}

impl<L: GradientTransformation> Lbfgs<L> {
    /// Sets the line search, or any other stage that decides the length of a step.
    ///
    /// ```
    /// use gradchain::prelude::*;
    /// use gradchain::transform::scale_by_backtracking_linesearch;
    ///
    /// let armijo = scale_by_backtracking_linesearch(20).increase_factor(f64::INFINITY);
    /// let optimizer = lbfgs().linesearch(armijo);
    /// let mut x = 3.0_f64;
    /// let mut state = optimizer.init(&x)?;
    /// let report = optimizer.minimize(&mut x, |x| (2.0 * x * x, 4.0 * x), &mut state).max_steps(10).run()?;
    /// assert!(report.converged());
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    pub fn linesearch<S: GradientTransformation>(self, linesearch: S) -> Lbfgs<S> {
        let (direction, rate, _) = self.chain;
        Lbfgs { chain: (direction, rate, linesearch) }
    }

    /// Takes the full step, which needs only gradients.
    ///
    /// ```
    /// use gradchain::prelude::*;
    ///
    /// let optimizer = lbfgs().without_linesearch();
    /// let mut x = 3.0_f64;
    /// let mut state = optimizer.init(&x)?;
    /// for _ in 0..2 {
    ///     let gradient = 4.0 * x;
    ///     optimizer.step(&mut x, &gradient, &mut state)?;
    /// }
    /// assert_eq!(x, 0.0); // one difference is enough to know a Hessian of 4
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    pub fn without_linesearch(self) -> Lbfgs<Identity> {
        self.linesearch(identity())
    }

    fn linesearch_recipe(&self) -> Option<Recipe> {
        Some(self.chain.2.recipe()).filter(|recipe| *recipe != Recipe::call("identity", []))
    }
}
