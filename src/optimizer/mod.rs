//! The named optimizers: each a short chain, written as one.
//!
//! [Which optimizer?](https://docs.rs/gradchain/latest/gradchain/_guide/which_optimizer/index.html) in the guide helps to
//! choose; [`transform`](crate::transform) lists the families and the page of each.

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

// By name: the compiler names the missing feature for these, and not for the names of a glob.
#[cfg(feature = "faer")]
#[cfg_attr(docsrs, doc(cfg(feature = "faer")))]
pub use matrix::decomposed::{Galore, Shampoo, Soap, galore, shampoo, soap};
