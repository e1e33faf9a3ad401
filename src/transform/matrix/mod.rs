//! What goes by the axes of a leaf: rows and columns, factors, singular values.

mod kronecker;
mod scale_by_factored_rms;
mod scale_by_galore;
mod scale_by_muon;
mod scale_by_rowwise_rss;
mod scale_by_shampoo;
mod scale_by_shape;
mod scale_by_sm3;
mod scale_by_soap;

pub use scale_by_factored_rms::{ScaleByFactoredRms, ScaleByFactoredRmsState, scale_by_factored_rms};
pub use scale_by_galore::{ScaleByGalore, ScaleByGaloreState, scale_by_galore};
pub use scale_by_muon::{
    DimensionNumbers, NsCoeffs, Preconditioning, ScaleByMuon, ScaleByMuonState, WeightDimensionNumbers, scale_by_muon,
};
pub use scale_by_rowwise_rss::{ScaleByRowwiseRss, ScaleByRowwiseRssState, scale_by_rowwise_rss};
pub use scale_by_shampoo::{ScaleByShampoo, ScaleByShampooState, scale_by_shampoo};
pub use scale_by_shape::{ScaleByShape, ScaleByShapeState, scale_by_shape};
pub use scale_by_sm3::{ScaleBySm3, ScaleBySm3State, scale_by_sm3};
pub use scale_by_soap::{ScaleBySoap, ScaleBySoapState, scale_by_soap};

/// How much work products and decompositions of a leaf's matrix are: for each element, as much as its shorter side is
/// long.
fn work_of_products(leaf: &crate::tree::LeafSpec) -> f64 {
    let longest = leaf.shape().iter().max().copied().unwrap_or(1).max(1);
    leaf.len() as f64 * (leaf.len() / longest).clamp(1, longest) as f64
}
