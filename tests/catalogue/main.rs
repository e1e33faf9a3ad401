//! What must hold of the whole catalogue: laws that every transformation keeps over random trees, that a step allocates
//! nothing, and that every optimizer converges. The entries are in `common::registry`; they are compiled once, for all
//! of it.
#![allow(missing_docs, reason = "a test program")]

mod allocations;
#[path = "../common/mod.rs"]
mod common;
mod convergence;
mod coverage;
#[cfg(all(feature = "checkpoint", feature = "config", feature = "half"))]
mod golden;
mod laws;
