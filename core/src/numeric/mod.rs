//! Arithmetic on numbers and arrays, independent of trees, states and steps.

pub(crate) mod convert;
#[cfg(feature = "faer")]
pub(crate) mod decompositions;
#[cfg(feature = "half")]
pub(crate) mod half_floats;
pub(crate) mod matmul;
pub(crate) mod opaque;
pub(crate) mod order;
pub(crate) mod prefetch;
pub(crate) mod quantization;
pub(crate) mod random;
pub(crate) mod simd;
pub(crate) mod spectral;
pub(crate) mod split;
pub(crate) mod sums;
