//! Arithmetic on numbers and arrays of them, which knows of no tree, no state and no step.

pub(crate) mod cube_root;
pub(crate) mod orthogonal;
pub(crate) mod random;
pub(crate) mod spectral;
pub(crate) mod svd;
pub(crate) mod symmetric;
