use super::{Adam, adam};
use crate::schedule::IntoHyperparam;

/// NAdam: [`adam`](adam()) with Nesterov's momentum.
///
/// # Arithmetic
///
/// ```text
/// adam(learning_rate, nesterov = true)
/// ```
///
/// # Cost
///
/// Two floats of state for each parameter; one pass.
///
/// # Errors
///
/// `init` fails if an argument is out of the range that [`scale_by_adam`](crate::scale_by_adam) gives.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::optimizer::nadam;
///
/// assert_eq!(nadam(0.1), adam(0.1).nesterov(true));
/// ```
///
/// # References
///
/// Dozat, [Incorporating Nesterov momentum into Adam](https://openreview.net/forum?id=OM0jvwB8jIp57ZJjtNEZ), 2016.
/// Optax, [`nadam`](https://optax.readthedocs.io/en/latest/api/optimizers.html). Differs: none but what
/// [`adam`](adam()) says. PyTorch's `NAdam` lets the momentum grow over the first steps (`momentum_decay`), as the
/// paper does; this does not.
pub fn nadam(learning_rate: impl IntoHyperparam) -> Adam {
    adam(learning_rate).nesterov(true)
}
