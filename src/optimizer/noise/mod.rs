//! Noise, and differentially private gradients.

mod dpsgd;
mod noisy_sgd;

pub use dpsgd::{Dpsgd, dpsgd};
pub use noisy_sgd::{NoisySgd, noisy_sgd};
