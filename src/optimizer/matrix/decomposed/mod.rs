//! What needs singular vectors, eigenvectors or QR decompositions.

use crate::arguments::required;
use crate::optimizer::inventory::Inventory;

mod galore;
mod shampoo;
mod soap;

pub use galore::{Galore, galore};
pub use shampoo::{Shampoo, shampoo};
pub use soap::{Soap, soap};

/// Lists the optimizers of this family.
pub(in crate::optimizer) fn list(to: &mut impl Inventory) {
    to.in_parts(|| shampoo(required()));
    to.in_parts(|| soap(required()));
}
