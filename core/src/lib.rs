//! The engine of `gradchain`, without its catalogue of transformations.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(not(feature = "collective"), allow(dead_code, unused_imports, reason = "ranks that share a step use it"))]

// The derive macros name the crate `::gradchain`.
extern crate self as gradchain;

pub mod arguments;
#[cfg(feature = "collective")]
#[cfg_attr(docsrs, doc(cfg(feature = "collective")))]
pub mod collective;
#[cfg(feature = "program")]
#[cfg_attr(docsrs, doc(cfg(feature = "program")))]
pub mod device;
mod element;
mod engine;
mod error;
mod evaluation;
mod evaluation_cache;
pub mod extra;
#[doc(hidden)]
pub mod internal;
mod layout;
#[macro_use]
mod macros;
mod memory;
mod migrate;
pub mod needs;
mod numeric;
pub mod part;
#[cfg(feature = "plot")]
#[cfg_attr(docsrs, doc(cfg(feature = "plot")))]
pub mod plot;
#[cfg(feature = "program")]
#[cfg_attr(docsrs, doc(cfg(feature = "program")))]
pub mod program;
pub mod range;
pub mod recipe;
mod replicas;
#[cfg(feature = "serde")]
mod restore;
pub mod schedule;
pub mod select;
pub mod state;
mod transformation;
pub mod tree;
mod tuples;
pub mod wrappers;

pub use element::{DType, Element, Real};
pub use engine::{
    Outcome, PassPlan, Plan, SimdLevel, Updates, Warning, WarningKind, detected_simd_level, force_simd_level,
};
pub use error::{Error, Result};
pub use evaluation::EvalParams;
#[cfg(feature = "derive")]
pub use gradchain_derive::State;
#[cfg(feature = "half")]
#[cfg_attr(docsrs, doc(cfg(feature = "half")))]
pub use half;
pub use migrate::Migration;
pub use ndarray;
pub use select::{Labels, Mask};
pub use transformation::{GradientTransformation, OptState};
pub use tree::{Tree, TreeMut, apply_updates};
