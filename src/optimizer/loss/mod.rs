//! What is given the loss: its value, or the loss as a function to search along.

use crate::optimizer::inventory::Inventory;

mod momo;
mod momo_adam;
mod polyak_sgd;

pub use momo::{Momo, MomoRun, MomoState, momo};
pub use momo_adam::{MomoAdam, MomoAdamRun, momo_adam};
pub use polyak_sgd::{PolyakSgd, polyak_sgd};

/// Lists the optimizers of this family.
pub(super) fn list(to: &mut impl Inventory) {
    to.typed(momo);
    to.typed(momo_adam);
    to.in_parts(polyak_sgd);
}
