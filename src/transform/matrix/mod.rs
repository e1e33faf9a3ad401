//! Transformations by the axes of a leaf: rows and columns, factors, singular values.

#[cfg(feature = "faer")]
pub(super) mod decomposed;
mod scale_by_factored_rms;
mod scale_by_muon;
mod scale_by_rowwise_rss;
mod scale_by_shape;
mod scale_by_sm3;

pub use crate::tree::Layout;
pub use scale_by_factored_rms::{ScaleByFactoredRms, ScaleByFactoredRmsState, scale_by_factored_rms};
pub use scale_by_muon::{
    DimensionNumbers, MatrixAxes, NsCoeffs, Preconditioning, ScaleByMuon, ScaleByMuonState, WeightDimensionNumbers,
    scale_by_muon,
};
pub use scale_by_rowwise_rss::{ScaleByRowwiseRss, ScaleByRowwiseRssState, scale_by_rowwise_rss};
pub use scale_by_shape::{ScaleByShape, ScaleByShapeState, scale_by_shape};
pub use scale_by_sm3::{ScaleBySm3, ScaleBySm3State, scale_by_sm3};

/// Returns the cost per element of products and decompositions: the length of the shorter side.
fn product_cost(leaf: &crate::tree::LeafSpec) -> f64 {
    let longest = leaf.shape().iter().max().copied().unwrap_or(1).max(1);
    leaf.len() as f64 * (leaf.len() / longest).clamp(1, longest) as f64
}
