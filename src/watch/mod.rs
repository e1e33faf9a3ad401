//! Output of [readings](crate::GradientTransformation::readings) of a run, and a learning-rate range test.

#[cfg(feature = "serde")]
mod json_lines;
mod rate_range;

#[cfg(feature = "serde")]
#[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
pub use json_lines::{JsonLines, read_json_lines};

pub use rate_range::{RateRange, rate_range};

pub use crate::state::{Reading, Readings};
