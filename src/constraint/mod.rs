//! Parameters constrained to sets by reparameterization: the optimizer steps unconstrained raw parameters.
//!
//! Guide: [Constraints](https://docs.rs/gradchain/latest/gradchain/_guide/constraints/index.html).
//!
//! Needs the feature `constraint`.
//!
//! A [`Constraint`] maps raw numbers to a leaf in a set. [`Constraints`] assigns them to leaves, and turns a tree of
//! parameters into a [`Raw`] tree. The optimizer steps the raw tree; the model takes the values that
//! [`constrain`](Raw::constrain) computes on demand; [`pull_back`](Raw::pull_back) converts gradients.
//!
//! | constraint | the leaf | computed from raw numbers by |
//! |---|---|---|
//! | [`interval`] | each element strictly between two bounds | a sigmoid |
//! | [`positive`], [`positive_exp`] | each element more than 0 | softplus; exp |
//! | [`simplex`] | along an axis: positive, with the sum 1 | softmax |
//! | [`unit_norm`] | along an axis: with norm 1 | division by the norm |
//! | [`orthogonal`] | a matrix with orthonormal columns, or rows | Gram-Schmidt orthogonalization |
//! | [`positive_definite`] | a symmetric positive definite matrix | L·Lᵀ of a lower triangle |
//! | [`symmetric`] | a symmetric matrix | a triangle |
//! | [`weight_norm`] | any nonzero rows | separate norms and directions |
//!
//! ```
//! use gradchain::constraint::{Constraints, interval};
//! use gradchain::prelude::*;
//!
//! // Two of eight coins came up heads. The log-likelihood is 2·ln p + 6·ln(1 − p).
//! let mut raw = Constraints::new().at("", interval(0.0, 1.0)).unconstrain(&0.5_f64)?;
//!
//! let optimizer = sgd(0.1);
//! let mut state = optimizer.init(&raw)?;
//! for _ in 0..200 {
//!     let p = raw.constrain()?;
//!     let gradient = 6.0 / (1.0 - *p) - 2.0 / *p;
//!     let gradient = raw.pull_back(gradient)?;
//!     optimizer.step(&mut raw, &gradient, &mut state)?;
//! }
//! approx::assert_abs_diff_eq!(*raw.constrain()?, 0.25, epsilon = 1e-12);
//! # Ok::<(), gradchain::Error>(())
//! ```
//!
//! # Rejected uses
//!
//! Raw and constrained numbers have different types and different paths: the raw leaf of `noise` is `noise/raw`.
//!
//! * A model cannot be called with raw numbers, and constrained ones cannot be stepped: neither compiles.
//! * Constrained values cannot be used after a step of the raw ones, which they borrow. ([`Constrained::into_inner`]
//!   returns an owned copy.)
//! * Gradients that were not pulled back, a state made for constrained parameters, and a file of them are refused,
//!   since their paths differ.
//!
//! # Numbers
//!
//! Values are computed in `f64` and rounded to the leaf's dtype once. Raw leaves have the compute type of the leaf:
//! those of 16-bit leaves are `f32`.

mod constraints;
mod interval;
mod lanes;
mod matrices;
mod numbers;
mod orthogonal;
mod plan;
mod positive;
mod positive_definite;
mod range;
mod raw;
mod simplex;
mod symmetric;
mod unit_norm;
mod weight_norm;

pub use constraints::Constraints;
pub use interval::{Interval, interval};
pub use orthogonal::{Orthogonal, orthogonal};
pub use positive::{Positive, positive, positive_exp};
pub use positive_definite::{PositiveDefinite, positive_definite};
pub use raw::{Constrained, Raw, RawGradient};
pub use simplex::{Simplex, simplex};
pub use symmetric::{Symmetric, symmetric};
pub use unit_norm::{UnitNorm, unit_norm};
pub use weight_norm::{WeightNorm, weight_norm};

pub use crate::internal::state::{ConstrainedLeaf, Constraint, Part};
