//! Optimizers that use the loss: its value, or the loss as a function to search along.

mod momo;
mod momo_adam;
mod polyak_sgd;

pub use momo::{Momo, MomoRun, MomoState, momo};
pub use momo_adam::{MomoAdam, MomoAdamRun, momo_adam};
pub use polyak_sgd::{PolyakSgd, polyak_sgd};
