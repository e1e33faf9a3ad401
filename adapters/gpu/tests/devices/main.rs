//! Devices: the catalogue, reductions, traffic, and states that move back and forth.

#[path = "../../../../tests/common/mod.rs"]
mod common;
#[cfg(feature = "cuda")]
mod on_cuda;
#[cfg(feature = "wgpu")]
mod on_wgpu;
mod suite;
