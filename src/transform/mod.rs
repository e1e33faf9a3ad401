//! The transformations, a file each.
mod scale;
pub use scale::*;
