//! Transformations that use the loss: its value, or the loss as a function to search along.

mod linesearch;
mod scale_by_backtracking_linesearch;
mod scale_by_polyak;
mod scale_by_zoom_linesearch;

pub use scale_by_backtracking_linesearch::{
    BacktrackingLinesearchInfo, ScaleByBacktrackingLinesearch, ScaleByBacktrackingLinesearchState,
    scale_by_backtracking_linesearch,
};
pub use scale_by_polyak::{PolyakScalars, PolyakVariant, ScaleByPolyak, scale_by_polyak};
pub use scale_by_zoom_linesearch::{
    InitialGuess, Interpolation, ScaleByZoomLinesearch, ScaleByZoomLinesearchState, ZoomLinesearchInfo,
    scale_by_zoom_linesearch,
};
