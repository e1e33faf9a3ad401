//! The named optimizers: each a short chain, written as one.

mod adam;
mod adamw;
mod lbfgs;

pub use adam::{Adam, adam};
pub use adamw::{Adamw, adamw};
pub use lbfgs::{Lbfgs, lbfgs};
