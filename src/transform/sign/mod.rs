//! Transformations by the sign of each element.

mod scale_by_lion;
mod scale_by_rprop;
mod scale_by_sign;

pub use scale_by_lion::{LionMode, LionScalars, ScaleByLion, ScaleByLionState, scale_by_lion};
pub use scale_by_rprop::{RpropScalars, ScaleByRprop, scale_by_rprop};
pub use scale_by_sign::{ScaleBySign, scale_by_sign};
