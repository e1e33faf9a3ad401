//! Configs, states as values, checkpoints, Optax's cases, NIST's problems, the fuzzing corpus.
//!
//! `cargo test --all-features --test files corpus` runs the tests of `corpus.rs`.
#![allow(missing_docs, reason = "a test program")]

#[cfg(all(feature = "checkpoint", feature = "derive"))]
mod checkpoint;
#[cfg(all(feature = "checkpoint", feature = "derive"))]
#[path = "../common/chunk.rs"]
mod chunk;
#[cfg(feature = "config")]
mod config;
#[cfg(all(feature = "config", feature = "half"))]
mod config_data;
#[cfg(feature = "config")]
mod conformance;
#[cfg(all(feature = "checkpoint", feature = "config", feature = "derive", feature = "half"))]
mod corpus;
#[cfg(all(feature = "checkpoint", feature = "config", feature = "derive"))]
mod nested;
mod nist;
#[cfg(feature = "checkpoint")]
mod proposals;
#[cfg(all(feature = "checkpoint", feature = "derive"))]
mod sharded;
#[cfg(all(feature = "derive", feature = "serde"))]
mod state_data;
