use crate::macros::optimizer;
use crate::schedule::Hyperparam;
use crate::transform::{ScaleByLbfgs, ScaleByLearningRate, scale_by_lbfgs, scale_by_learning_rate};

/// L-BFGS with a fixed or scheduled step: a quasi-Newton method for smooth losses and full-batch gradients.
///
/// There is no line search, so the learning rate has to be given; 1 is the full quasi-Newton step, right near a minimum and
/// for convex losses that are close to quadratic.
///
/// # Arithmetic
///
/// ```text
/// chain(scale_by_lbfgs(memory_size, scale_init_precond), scale_by_learning_rate(learning_rate))
/// ```
///
/// Defaults: `memory_size` 10, `scale_init_precond` true.
///
/// # Cost
///
/// `2·memory_size + 2` floats of state for each parameter; two passes.
///
/// # Errors
///
/// `init` fails if `memory_size` is 0 or the learning rate is not finite.
///
/// # Example
///
/// Logistic regression with a ridge, in `f64`, to the last digits:
///
/// ```
/// use gradchain::prelude::*;
/// use ndarray::{Array1, array};
///
/// let x = array![[1.0, 0.5], [1.0, -1.5], [1.0, 2.0], [1.0, 0.1]];
/// let y = array![1.0, 0.0, 1.0, 0.0];
/// let gradient = |w: &Array1<f64>| {
///     let predicted = x.dot(w).mapv(|z| 1.0 / (1.0 + (-z).exp()));
///     x.t().dot(&(predicted - &y)) + 0.1 * w
/// };
///
/// let optimizer = lbfgs(1.0);
/// let mut w = Array1::zeros(2);
/// let mut state = optimizer.init(&w)?;
/// for _ in 0..20 {
///     let g = gradient(&w);
///     optimizer.step(&mut w, &g, &mut state)?;
/// }
/// assert!(gradient(&w).iter().all(|g| g.abs() < 1e-12));
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Liu and Nocedal, [On the limited memory BFGS method for large scale
/// optimization](https://doi.org/10.1007/BF01589116), 1989. Optax,
/// [`lbfgs`](https://optax.readthedocs.io/en/latest/api/optimizers.html). Differs: no line search, as with
/// `linesearch=None` there, where leaving out the learning rate means 1. PyTorch's `LBFGS` calls back into the loss several
/// times in a step.
pub fn lbfgs(learning_rate: impl Into<Hyperparam>) -> Lbfgs {
    Lbfgs { chain: (scale_by_lbfgs(), scale_by_learning_rate(learning_rate)) }
}

type Chain = (ScaleByLbfgs, ScaleByLearningRate);

/// See [`lbfgs`](lbfgs()).
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a transformation does nothing until it is given gradients"]
pub struct Lbfgs {
    pub(crate) chain: Chain,
}

optimizer! {
    Lbfgs as "lbfgs" = Chain {
        hyperparams:
            learning_rate [1.learning_rate] "Sets the learning rate.";
        options:
            scale_init_precond: bool [0.scale_init_precond]
                "Sets whether the estimate of the inverse Hessian starts from a scaled identity.";
        integers:
            memory_size: usize [0.memory_size] "Sets how many differences are kept; at least 1.";
    }
}
