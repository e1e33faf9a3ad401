//! Optimizers by the axes of a leaf: rows and columns, factors, singular values.

mod adafactor;
#[cfg(feature = "faer")]
pub(super) mod decomposed;
mod muon;
mod rowwise_adagrad;
mod sm3;

pub use adafactor::{Adafactor, adafactor};
pub use muon::{Muon, muon};
pub use rowwise_adagrad::{RowwiseAdagrad, rowwise_adagrad};
pub use sm3::{Sm3, sm3};
