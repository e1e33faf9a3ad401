//! What goes by the axes of a leaf: rows and columns, factors, singular values.

use crate::arguments::required;
use crate::optimizer::inventory::Inventory;

mod adafactor;
#[cfg(feature = "faer")]
pub(super) mod decomposed;
mod muon;
mod rowwise_adagrad;
mod sm3;

pub use adafactor::{Adafactor, adafactor};
pub use muon::{Muon, muon};
pub use rowwise_adagrad::{RowwiseAdagrad, rowwise_adagrad};
pub use sm3::{Sm3, sm3};

/// Lists the optimizers of this family.
pub(super) fn list(to: &mut impl Inventory) {
    to.in_parts(|| rowwise_adagrad(required()));
    to.in_parts(|| sm3(required()));
    #[cfg(feature = "faer")]
    decomposed::list(to);
}
