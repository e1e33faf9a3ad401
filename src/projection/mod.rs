//! Projections onto sets: the nearest point of a set.
//!
//! Guide: [Projections](https://docs.rs/gradchain/latest/gradchain/_guide/projections/index.html).
//!
//! Needs the feature `constraint`.
//!
//! Each set is a value, built by the function of its name. [`Projection::project`] changes a tree in place; the
//! function `projection_*` of the same name, as in Optax, is its short form. [`project`](crate::transform::project)
//! turns a set into a transformation that keeps parameters in it during training.
//!
//! | set | function | of the whole tree `x`, as one vector |
//! |---|---|---|
//! | [`non_negative`] | [`projection_non_negative`] | `x ≥ 0` |
//! | [`box_set`] | [`projection_box`] | `lower ≤ x ≤ upper` |
//! | [`hypercube`] | [`projection_hypercube`] | `0 ≤ x ≤ scale` |
//! | [`linf_ball`] | [`projection_linf_ball`] | `max abs(x) ≤ scale` |
//! | [`l1_ball`], [`l1_sphere`] | [`projection_l1_ball`], [`projection_l1_sphere`] | `Σ abs(x) ≤ scale`, `= scale` |
//! | [`l2_ball`], [`l2_sphere`] | [`projection_l2_ball`], [`projection_l2_sphere`] | `√Σx² ≤ scale`, `= scale` |
//! | [`simplex`] | [`projection_simplex`] | `x ≥ 0`, `Σx = scale` |
//! | [`hyperplane`], [`halfspace`] | [`projection_hyperplane`], [`projection_halfspace`] | `⟨a, x⟩ = b`, `≤ b` |
//! | [`vector`](fn@vector) | [`projection_vector`] | `x = t·a` for some number `t` |
//!
//! Projections are computed in `f64` and rounded to each leaf's dtype once. Names follow [`optax.projections`].
//!
//! ```
//! use gradchain::projection::{Projection, l2_ball, projection_l2_ball};
//!
//! let mut tree = (vec![3.0_f32], 4.0_f64);
//! projection_l2_ball(&mut tree, 2.5)?;
//! assert_eq!(tree, (vec![1.5], 2.0));
//! l2_ball(1.25).project(&mut tree)?;
//! assert_eq!(tree, (vec![0.75], 1.0));
//! # Ok::<(), gradchain::Error>(())
//! ```
//!
//! [`optax.projections`]: https://optax.readthedocs.io/en/latest/api/projections.html

mod box_set;
mod halfspace;
mod hypercube;
mod hyperplane;
mod l1_ball;
mod l1_sphere;
mod l2_ball;
mod l2_sphere;
mod linf_ball;
mod non_negative;
mod operand;
mod set;
mod simplex;
mod stage_of_elements;
mod stage_of_tree;
mod vector;
mod vector_line;

pub use box_set::{BoxSet, box_set, projection_box};
pub use halfspace::{Halfspace, halfspace, projection_halfspace};
pub use hypercube::{Hypercube, hypercube, projection_hypercube};
pub use hyperplane::{Hyperplane, hyperplane, projection_hyperplane};
pub use l1_ball::{L1Ball, l1_ball, projection_l1_ball};
pub use l1_sphere::{L1Sphere, l1_sphere, projection_l1_sphere};
pub use l2_ball::{L2Ball, l2_ball, projection_l2_ball};
pub use l2_sphere::{L2Sphere, l2_sphere, projection_l2_sphere};
pub use linf_ball::{LinfBall, linf_ball, projection_linf_ball};
pub use non_negative::{NonNegative, non_negative, projection_non_negative};
pub use operand::{Operand, TreeValues};
pub use set::Projection;
pub use simplex::{Simplex, projection_simplex, simplex};
pub use stage_of_elements::{ProjectElements, ProjectElementsState};
pub use stage_of_tree::{ProjectTree, ProjectTreeState};
pub use vector_line::{VectorLine, projection_vector, vector};
