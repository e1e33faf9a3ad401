//! Steps along the gradient, or its running mean.

use crate::arguments::required;
use crate::optimizer::inventory::Inventory;

mod optimistic_gradient_descent;
mod sgd;

pub use optimistic_gradient_descent::{OptimisticGradientDescent, optimistic_gradient_descent};
pub use sgd::{Sgd, sgd};

/// Lists the optimizers of this family.
pub(super) fn list(to: &mut impl Inventory) {
    to.in_parts(|| optimistic_gradient_descent(required()));
}
