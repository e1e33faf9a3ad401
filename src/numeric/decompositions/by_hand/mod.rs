//! Decompositions by hand: what is there where faer, with its fifty crates, is not. Nothing depends on the instruction
//! set.

mod reflect;
mod rotate;
mod tridiagonal;

pub(crate) use reflect::orthogonalize;
pub(super) use rotate::rotate;
pub(super) use tridiagonal::eigen;

/// Room that a decomposition needs; kept for the next.
#[derive(Debug, Default)]
pub(crate) struct Room {
    /// What is beside the diagonal, and a zero.
    beside: Vec<f64>,
    along: Vec<f64>,
}
