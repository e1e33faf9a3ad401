//! The named optimizers: each a short chain, written as one.

mod adafactor;
mod adagrad;
mod adam;
mod adamw;
mod amsgrad;
mod lamb;
mod lbfgs;
mod lion;
mod muon;
mod nadam;
mod nadamw;
mod rmsprop;
mod sgd;

pub use adafactor::{Adafactor, adafactor};
pub use adagrad::{Adagrad, adagrad};
pub use adam::{Adam, adam};
pub use adamw::{Adamw, adamw};
pub use amsgrad::{Amsgrad, amsgrad};
pub use lamb::{Lamb, lamb};
pub use lbfgs::{Lbfgs, lbfgs};
pub use lion::{Lion, lion};
pub use muon::{Muon, muon};
pub use nadam::nadam;
pub use nadamw::nadamw;
pub use rmsprop::{Rmsprop, rmsprop};
pub use sgd::{Sgd, sgd};
