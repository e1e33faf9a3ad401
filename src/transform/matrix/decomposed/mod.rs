//! Transformations by singular vectors, eigenvectors or QR decompositions.

mod kronecker;
mod scale_by_galore;
mod scale_by_shampoo;
mod scale_by_soap;

pub use scale_by_galore::{ScaleByGalore, ScaleByGaloreState, scale_by_galore};
pub use scale_by_shampoo::{ScaleByShampoo, ScaleByShampooState, scale_by_shampoo};
pub use scale_by_soap::{ScaleBySoap, ScaleBySoapState, scale_by_soap};
