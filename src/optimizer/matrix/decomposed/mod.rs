//! Optimizers by singular vectors, eigenvectors or QR decompositions.

mod galore;
mod shampoo;
mod soap;

pub use galore::{Galore, galore};
pub use shampoo::{Shampoo, shampoo};
pub use soap::{Soap, soap};
