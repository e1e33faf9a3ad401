//! Transformations that keep parameters in a set.

mod keep_params_nonnegative;
mod project;

pub use keep_params_nonnegative::{KeepParamsNonnegative, keep_params_nonnegative};
pub use project::project;
