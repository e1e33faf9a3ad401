//! What goes by norms and means of leaves, or of the whole tree.

use crate::arguments::required;
use crate::optimizer::inventory::Inventory;

mod fromage;
mod lamb;
mod lars;
mod novograd;

pub use fromage::{Fromage, FromageStep, fromage};
pub use lamb::{Lamb, lamb};
pub use lars::{Lars, lars};
pub use novograd::{Novograd, novograd};

/// Lists the optimizers of this family.
pub(super) fn list(to: &mut impl Inventory) {
    to.in_parts(|| fromage(required()));
    to.typed(|| lamb(required()));
    to.typed(|| lars(required()));
    to.in_parts(|| novograd(required()));
}
