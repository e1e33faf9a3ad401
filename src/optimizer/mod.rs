//! The named optimizers: short chains under one name.
//!
//! The guide's [Which optimizer?](https://docs.rs/gradchain/latest/gradchain/_guide/which_optimizer/index.html) helps
//! to choose; [`transform`](crate::transform) lists the families and the page of each.

mod adaptive;
mod curvature;
mod elementwise;
mod instances;
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

// By name: with a glob the compiler would not name the missing feature.
#[cfg(feature = "contrib")]
#[cfg_attr(docsrs, doc(cfg(feature = "contrib")))]
pub use adaptive::{
    acprop::{Acprop, acprop},
    simplified_ademamix::{SimplifiedAdemamix, simplified_ademamix},
};
#[cfg(feature = "minimize")]
#[cfg_attr(docsrs, doc(cfg(feature = "minimize")))]
pub use curvature::lbfgs::{Lbfgs, lbfgs};
#[cfg(feature = "contrib")]
#[cfg_attr(docsrs, doc(cfg(feature = "contrib")))]
pub use loss::{
    momo::{Momo, MomoRun, MomoState, momo},
    momo_adam::{MomoAdam, MomoAdamRun, momo_adam},
};
#[cfg(feature = "faer")]
#[cfg_attr(docsrs, doc(cfg(feature = "faer")))]
pub use matrix::decomposed::{Galore, Shampoo, Soap, galore, shampoo, soap};
#[cfg(feature = "contrib")]
#[cfg_attr(docsrs, doc(cfg(feature = "contrib")))]
pub use parameter_free::dowg::{Dowg, dowg};
