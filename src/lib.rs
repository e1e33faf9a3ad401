//! Composable gradient transformations.
#![cfg_attr(docsrs, feature(doc_cfg))]

// Lets the derive macros name this crate by `::gradchain`, here as elsewhere.
extern crate self as gradchain;

mod element;
mod error;
mod memory;
pub mod schedule;
pub mod select;
pub mod state;
pub mod tree;
mod tuples;

pub use element::{DType, Element, Real};
pub use error::{Error, Result};
pub use tree::{Tree, TreeMut, apply_updates};
