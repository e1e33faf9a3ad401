//! Devices: the catalogue, the sums, what crosses, and states that go back and forth.

#[path = "../../../../tests/common/mod.rs"]
mod common;
#[cfg(feature = "cuda")]
mod on_cuda;
#[cfg(feature = "wgpu")]
mod on_wgpu;
mod suite;
