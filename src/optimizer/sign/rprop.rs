use crate::schedule::IntoHyperparam;
use crate::transform::{Scale, ScaleByRprop, scale, scale_by_rprop};

/// Rprop: per-element steps of adaptive size against the sign of the gradient.
///
/// It is for full-batch gradients. With mini-batches signs change by chance, and steps shrink until nothing moves.
///
/// # Arithmetic
///
/// ```text
/// chain(scale_by_rprop(learning_rate, eta_minus, eta_plus, min_step_size, max_step_size), scale(-1))
/// ```
///
/// Defaults: `eta_minus` 0.5, `eta_plus` 1.2, `min_step_size` 1e-6, `max_step_size` 50. `learning_rate` is the size of
/// the first step only.
///
/// # Cost
///
/// Two floats of state per parameter; one pass.
///
/// # Errors
///
/// `init` fails if an argument is out of the range that [`scale_by_rprop`] gives.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::optimizer::rprop;
///
/// let optimizer = rprop(0.5);
/// let mut params = 2.0_f64;
/// let mut state = optimizer.init(&params)?;
/// for expected in [1.5, 0.9] {
///     let gradient = 2.0 * params;
///     optimizer.step(&mut params, &gradient, &mut state)?;
///     assert_eq!(params, expected);
/// }
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// As [`scale_by_rprop`]. Optax, [`rprop`](https://optax.readthedocs.io/en/latest/api/optimizers.html). Differs:
/// Optax's update is always that of the step before.
pub fn rprop(learning_rate: impl IntoHyperparam) -> Rprop {
    Rprop { chain: (scale_by_rprop(learning_rate), scale(-1.0)) }
}

optimizer! {
    /// See [`rprop`](rprop()).
    #[derive(PartialEq)]
    Rprop as "rprop" = (ScaleByRprop, Scale) {
        hyperparams:
            learning_rate [0.learning_rate] "Sets the size of the first step.",
            eta_minus [0.eta_minus] "Sets the factor of a step if the sign changes.",
            eta_plus [0.eta_plus] "Sets the factor of a step if the sign stays.",
            min_step_size [0.min_step_size] "Sets the smallest step.",
            max_step_size [0.max_step_size] "Sets the largest step.";
    }
}
