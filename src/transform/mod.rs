//! The transformations that chains are made of, a file each.

mod adaptive;
mod curvature;
mod elementwise;
mod loss;
mod matrix;
mod moment;
mod noise;
mod norms;
mod parameter_free;
mod projection;
mod rescale;
mod sign;
mod watching;

pub use adaptive::*;
pub use curvature::*;
pub use elementwise::*;
pub use loss::*;
pub use matrix::*;
pub use noise::*;
pub use norms::*;
pub use parameter_free::*;
pub use projection::*;
pub use rescale::RescaleState;
pub use sign::*;
pub use watching::*;
