//! Curvature: differences of gradients, or an estimate of the Hessian's diagonal.

#[cfg(feature = "minimize")]
pub(super) mod lbfgs;
mod sophia;

pub use sophia::{Sophia, sophia};
