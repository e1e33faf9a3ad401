//! Composable gradient transformations.
#![cfg_attr(docsrs, feature(doc_cfg))]

// Lets the derive macros name this crate by `::gradchain`, here as elsewhere.
extern crate self as gradchain;

mod element;
mod error;
mod memory;
pub mod state;
pub mod tree;
mod tuples;

pub use element::{DType, Element, Real};
pub use error::{Error, Result};
#[cfg(feature = "derive")]
pub use gradchain_derive::State;
pub use tree::{Tree, TreeMut, apply_updates};
