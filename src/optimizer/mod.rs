//! The named optimizers: each a short chain, written as one.

mod adam;
mod adamw;
mod lamb;
mod lbfgs;
mod lion;
mod sgd;

pub use adam::{Adam, adam};
pub use adamw::{Adamw, adamw};
pub use lamb::{Lamb, lamb};
pub use lbfgs::{Lbfgs, lbfgs};
pub use lion::{Lion, lion};
pub use sgd::{Sgd, sgd};
