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
/// Two floats of state per parameter; one pass.
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
/// let pytorch = nadam(2e-3).momentum_decay(4e-3); // `torch.optim.NAdam` with its defaults
/// # let _ = pytorch;
/// ```
///
/// # References
///
/// Dozat, [Incorporating Nesterov momentum into Adam](https://openreview.net/forum?id=OM0jvwB8jIp57ZJjtNEZ), 2016.
/// Optax, [`nadam`](https://optax.readthedocs.io/en/latest/api/optimizers.html). Differs: none but what
/// [`adam`](adam()) says. PyTorch's `NAdam` lets the momentum grow over the steps, as the paper does: that is
/// [`momentum_decay`](Adam::momentum_decay), 4e-3 there by default and none here and in Optax.
pub fn nadam(learning_rate: impl IntoHyperparam) -> Adam {
    adam(learning_rate).nesterov(true)
}
