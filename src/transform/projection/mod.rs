//! Transformations that keep parameters in a set.

mod keep_params_nonnegative;
#[cfg(feature = "constraint")]
pub(super) mod project;

pub use keep_params_nonnegative::{KeepParamsNonnegative, keep_params_nonnegative};
