//! What adds noise, and what makes gradients of examples private with it.

mod dpsgd;
mod noisy_sgd;

pub use dpsgd::{Dpsgd, dpsgd};
pub use noisy_sgd::{NoisySgd, noisy_sgd};
