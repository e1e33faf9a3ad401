//! The catalogue, reductions, traffic, and states that move back and forth.

#[allow(
    unexpected_cfgs,
    unused_imports,
    reason = "shared with the catalogue, which uses more of it with more features"
)]
#[path = "../../../../tests/common/mod.rs"]
mod common;
#[cfg(feature = "cuda")]
mod on_cuda;
#[cfg(feature = "wgpu")]
mod on_wgpu;
mod suite;
