use super::{Masked, masked};
use crate::select::Mask;
use crate::transform::{SetToZero, set_to_zero};

/// Replaces the updates of the selected leaves by zero, so that their parameters stay bitwise identical.
///
/// Earlier members of a chain still see those leaves and have state for them; [`selective_transform`] avoids that
/// state. [`freezable`](crate::wrapper::freezable) freezes and thaws during training.
///
/// # Arithmetic
///
/// ```text
/// u ← 0         in the selected leaves; the others are unmodified
/// ```
///
/// # Cost
///
/// None.
///
/// # Errors
///
/// `init` fails if a pattern of the mask matches no leaf.
///
/// # Example
///
/// As the last member it freezes parameters; as the first it only drops their gradients, and weights still decay:
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::wrapper::freeze;
///
/// let last = chain((add_decayed_weights(0.5), sgd(1.0), freeze(Mask::path("0"))));
/// let mut params = (2.0_f64, 2.0_f64);
/// let mut state = last.init(&params)?;
/// last.step(&mut params, &(1.0, 1.0), &mut state)?;
/// assert_eq!(params, (2.0, 0.0));
///
/// let first = chain((freeze(Mask::path("0")), add_decayed_weights(0.5), sgd(1.0)));
/// let mut params = (2.0_f64, 2.0_f64);
/// let mut state = first.init(&params)?;
/// first.step(&mut params, &(1.0, 1.0), &mut state)?;
/// assert_eq!(params, (1.0, 0.0));
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Optax, [`freeze`](https://optax.readthedocs.io/en/latest/api/transformations.html). Differs: none. PyTorch:
/// `requires_grad_(False)`, after which decay does not touch a parameter either.
pub fn freeze(mask: impl Into<Mask>) -> Masked<SetToZero> {
    masked(set_to_zero(), mask)
}

/// Applies an optimizer to all leaves but the selected ones, whose updates are zero.
///
/// Only the other leaves have state, and reductions over the tree, such as norms, cover them alone. It is Optax's name
/// for [`masked(optimizer, !freeze_mask).freeze_others()`](Masked::freeze_others).
///
/// # Arithmetic
///
/// ```text
/// u ← 0                 in the selected leaves
/// u ← optimizer(u)      in the others
/// ```
///
/// # Cost
///
/// None. Frozen leaves have no state.
///
/// # Errors
///
/// `init` fails if a pattern of the mask matches no leaf.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::wrapper::selective_transform;
///
/// // The norm is that of the trained leaf's gradient alone: 4.
/// let optimizer = selective_transform(chain((clip_by_global_norm(1.0), sgd(1.0))), Mask::path("0"));
/// let mut params = (1.0_f64, 1.0_f64);
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &(3.0, 4.0), &mut state)?;
/// assert_eq!(params, (1.0, 0.0));
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Optax, [`selective_transform`](https://optax.readthedocs.io/en/latest/api/transformations.html). Differs: none.
pub fn selective_transform<T>(optimizer: T, freeze_mask: impl Into<Mask>) -> Masked<T> {
    masked(optimizer, !freeze_mask.into()).freeze_others()
}
