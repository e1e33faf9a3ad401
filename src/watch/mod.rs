//! Writing down what there is to [read](crate::GradientTransformation::readings) of a run.

#[cfg(feature = "serde")]
mod json_lines;
#[cfg(feature = "tracing")]
mod trace;

#[cfg(feature = "serde")]
#[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
pub use json_lines::{JsonLines, read_json_lines};

pub use crate::state::{Reading, Readings};
