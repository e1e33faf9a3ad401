use super::{Adamw, adamw};
use crate::schedule::IntoHyperparam;

/// NAdamW: [`adamw`] with Nesterov's momentum.
///
/// # Arithmetic
///
/// ```text
/// adamw(learning_rate, nesterov = true)
/// ```
///
/// # Cost
///
/// Two floats of state per parameter; one pass, mask or not.
///
/// # Errors
///
/// `init` fails if an argument is out of range, or a pattern of the mask matches no leaf.
///
/// # Example
///
/// With a gradient of zero only the decay is left: `1 − 0.1·0.5`.
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::optimizer::nadamw;
///
/// let optimizer = nadamw(0.1).weight_decay(0.5);
/// let mut params = 1.0_f64;
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &0.0_f64, &mut state)?;
/// assert_eq!(params, 0.95);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Dozat, [Incorporating Nesterov momentum into Adam](https://openreview.net/forum?id=OM0jvwB8jIp57ZJjtNEZ), 2016;
/// Loshchilov and Hutter, [Decoupled weight decay regularization](https://arxiv.org/abs/1711.05101), 2017. Optax,
/// [`nadamw`](https://optax.readthedocs.io/en/latest/api/optimizers.html). Differs: as [`adamw`]. PyTorch:
/// `NAdam(decoupled_weight_decay=True)`, with [`momentum_decay`](Adamw::momentum_decay).
pub fn nadamw(learning_rate: impl IntoHyperparam) -> Adamw {
    adamw(learning_rate).nesterov(true)
}
