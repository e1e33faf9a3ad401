//! Optimizers that use the loss: its value, or the loss as a function to search along.

#[cfg(feature = "contrib")]
pub(super) mod momo;
#[cfg(feature = "contrib")]
pub(super) mod momo_adam;
mod polyak_sgd;

pub use polyak_sgd::{PolyakSgd, polyak_sgd};
