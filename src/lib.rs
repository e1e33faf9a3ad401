//! Composable gradient transformations.
#![cfg_attr(docsrs, feature(doc_cfg))]

// Lets the derive macros name this crate by `::gradchain`, here as elsewhere.
extern crate self as gradchain;

mod element;
mod engine;
mod error;
mod memory;
pub mod schedule;
pub mod select;
pub mod state;
pub mod tree;
pub mod transform;
pub use transform as transform_test;
mod transformation;
mod tuples;

pub use element::{DType, Element, Real};
pub use engine::{Clock, InitContext, Isa, LeafVisitor, Outcome, PassPlan, Place, Plan, Rule, RuleState, Shape, SlotArray, SlotList, Span, Stage, StepContext, Sums, Tile, Updates, WholeLeaf, WholeTree, detected_isa, force_isa};
pub use error::{Error, Result};
pub use transformation::{GradientTransformation, OptState};
pub use tree::{Tree, TreeMut, apply_updates};
