//! Properties of the whole catalogue: laws over random trees, allocations, convergence.
//!
//! The entries are in `common::registry`, compiled once for all tests.
#![allow(missing_docs, reason = "a test program")]

mod allocations;
#[path = "../common/mod.rs"]
mod common;
mod convergence;
mod coverage;
#[cfg(all(feature = "checkpoint", feature = "config", feature = "half"))]
mod golden;
mod laws;
