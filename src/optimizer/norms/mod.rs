//! Optimizers by norms and means of leaves or of the whole tree.

mod fromage;
mod lamb;
mod lars;
mod novograd;

pub use fromage::{Fromage, FromageStep, fromage};
pub use lamb::{Lamb, lamb};
pub use lars::{Lars, lars};
pub use novograd::{Novograd, novograd};
