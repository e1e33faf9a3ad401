//! Behaviour of transformations, wrappers and functions, against the papers, other libraries' records and the
//! documentation.
//!
//! `cargo test --all-features --test behaviour sign` runs the tests of `sign.rs`.
#![allow(missing_docs, reason = "a test program")]

mod adaptive;
mod anchored;
#[cfg(feature = "derive")]
mod averaging;
mod beyond;
mod carried_states;
mod exchanged;
mod factors;
#[cfg(feature = "half")]
mod few_bits;
#[cfg(all(feature = "config", feature = "half"))]
mod fitting;
mod freezable;
#[cfg(feature = "rayon")]
mod large_leaves;
mod layerwise;
#[cfg(feature = "derive")]
mod layouts;
mod leaf_statistics;
#[cfg(all(feature = "config", feature = "half"))]
mod linesearch;
mod lint;
mod loss_scale;
mod magnitudes;
#[cfg(all(feature = "config", feature = "half"))]
mod minimize;
mod only_parameters;
#[path = "../common/oracle.rs"]
mod oracle;
mod outcomes;
mod own_rule;
#[cfg(feature = "derive")]
mod own_wrapper;
mod parameter_free;
mod parts_of_states;
#[cfg(feature = "derive")]
mod programs;
mod pytorch;
#[cfg(all(feature = "derive", feature = "half"))]
mod quantized;
#[cfg(feature = "derive")]
mod regressions;
mod remote;
mod reset_state;
mod rows;
mod select;
mod sign;
mod skip_absent;
#[cfg(feature = "derive")]
mod state;
#[cfg(feature = "derive")]
mod tied;
mod transforms_elementwise;
mod transforms_whole;
#[cfg(feature = "derive")]
mod tree;
mod tree_math;
mod wrappers_catalogue;
