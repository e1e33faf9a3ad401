//! Transformations that use the loss: its value, or the loss as a function to search along.

#[cfg(feature = "minimize")]
mod linesearch;
#[cfg(feature = "minimize")]
pub(super) mod scale_by_backtracking_linesearch;
mod scale_by_polyak;
#[cfg(feature = "minimize")]
pub(super) mod scale_by_zoom_linesearch;

pub use scale_by_polyak::{PolyakScalars, PolyakVariant, ScaleByPolyak, scale_by_polyak};
