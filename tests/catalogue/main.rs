//! What must hold of the whole catalogue: laws that every transformation keeps over random trees, and that a step allocates
//! nothing. The entries are in `common::registry`; they are compiled once, for all of it.
#![allow(missing_docs, reason = "a test program")]

mod allocations;
#[path = "../common/mod.rs"]
mod common;
mod laws;
