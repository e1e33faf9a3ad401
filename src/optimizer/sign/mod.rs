//! What goes by the sign of each element.

use crate::arguments::required;
use crate::optimizer::inventory::Inventory;

mod cautious_lion;
mod lion;
mod rprop;
mod sign_sgd;
mod signum;

pub use cautious_lion::{CautiousLion, cautious_lion};
pub use lion::{Lion, lion};
pub use rprop::{Rprop, rprop};
pub use sign_sgd::{SignSgd, sign_sgd};
pub use signum::{Signum, signum};

/// Lists the optimizers of this family.
pub(super) fn list(to: &mut impl Inventory) {
    to.typed(|| cautious_lion(required()));
    to.typed(|| lion(required()));
    to.in_parts(|| rprop(required()));
    to.in_parts(|| sign_sgd(required()));
    to.typed(|| signum(required()));
}
