//! The named optimizers: each a short chain, written as one.

mod adaptive;
mod curvature;
mod elementwise;
mod loss;
mod matrix;
mod noise;
mod norms;
mod parameter_free;
mod sign;

pub use adaptive::*;
pub use curvature::*;
pub use elementwise::*;
pub use loss::*;
pub use matrix::*;
pub use noise::*;
pub use norms::*;
pub use parameter_free::*;
pub use sign::*;
