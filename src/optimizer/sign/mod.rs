//! Optimizers by the sign of each element.

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
