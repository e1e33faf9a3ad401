//! Properties of the whole catalogue: laws over random trees, no allocations in a step, and convergence.
//!
//! The entries are in `common::registry`; one compilation serves all tests.
#![allow(missing_docs, reason = "a test program")]

mod allocations;
#[path = "../common/mod.rs"]
mod common;
mod convergence;
mod coverage;
#[cfg(all(feature = "checkpoint", feature = "config", feature = "half"))]
mod golden;
mod laws;
