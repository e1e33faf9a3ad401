//! The named optimizers: each a short chain, written as one.

mod adafactor;
mod adam;
mod adamw;
mod lamb;
mod lbfgs;
mod lion;
mod muon;
mod noisy_sgd;
mod rprop;
mod sgd;
mod sign_sgd;
mod signum;

pub use adafactor::{Adafactor, adafactor};
pub use adam::{Adam, adam};
pub use adamw::{Adamw, adamw};
pub use lamb::{Lamb, lamb};
pub use lbfgs::{Lbfgs, lbfgs};
pub use lion::{Lion, lion};
pub use muon::{Muon, muon};
pub use noisy_sgd::{NoisySgd, noisy_sgd};
pub use rprop::{Rprop, rprop};
pub use sgd::{Sgd, sgd};
pub use sign_sgd::{SignSgd, sign_sgd};
pub use signum::{Signum, signum};
