//! Curvature: differences of gradients, or an estimate of the Hessian's diagonal.

mod lbfgs;
mod sophia;

pub use lbfgs::{Lbfgs, lbfgs};
pub use sophia::{Sophia, sophia};
