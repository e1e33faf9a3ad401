//! The transformations by name, a file for each family.

pub(super) mod adaptive;
pub(super) mod curvature;
pub(super) mod elementwise;
pub(super) mod loss;
pub(super) mod matrix;
pub(super) mod noise;
pub(super) mod norms;
pub(super) mod parameter_free;
pub(super) mod projection;
pub(super) mod sign;
pub(super) mod watching;
pub(super) mod wrappers;
