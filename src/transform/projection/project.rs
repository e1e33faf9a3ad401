use crate::projection::Projection;

/// Changes updates so that the updated parameters are projected onto a set.
///
/// Put it last in a chain. The earlier stages keep their state: momentum and the like continue unchanged.
///
/// Needs the feature `constraint`.
///
/// # Arithmetic
///
/// ```text
/// u ← projection(p + u) − p
/// ```
///
/// For [sets of the whole tree](crate::projection) `p` and `u` are the active leaves as one vector:
/// [`masked`](crate::masked) makes that one leaf, and a [`chain`](crate::chain) of such constraints each of several.
/// They are computed in `f64` and rounded once.
///
/// After a step the parameters are in the set, up to rounding:
///
/// * Bounds on elements hold exactly, for leaves of `f32` and `f64`, as rounded to that type: the update is rounded
///   inwards if necessary. (Only bounds that are closer than the numbers at `p` leave no such update.)
/// * For all others, and for bounds on 16-bit leaves, the update and the sum `p + u` are each rounded to nearest: an
///   element is off by at most half a unit in the last place of either.
///
/// An update that already leads into the set stays bitwise identical.
///
/// # Cost
///
/// No state for elements. Bounds on elements fuse, and read parameters; bounds that are trees are kept as `f64` arrays
/// and do not. Other sets take one more pass, with the updates in memory, and as many reads of them as the projection
/// documents.
///
/// # Errors
///
/// `init` fails if an argument of the set is out of its range, or is a tree that does not fit the parameters.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::transform::project;
/// use gradchain::projection::{l2_ball, simplex};
///
/// let optimizer = chain((sgd(1.0), project(simplex(1.0))));
/// let mut weights = vec![0.5_f64, 0.5, 0.0];
/// let mut state = optimizer.init(&weights)?;
/// optimizer.step(&mut weights, &vec![0.0, -0.5, 0.0], &mut state)?;
/// assert_eq!(weights, [0.25, 0.75, 0.0]);
///
/// // The norm of one leaf is kept at most 1, whatever happens to the other.
/// let optimizer = chain((adam(0.1), masked(project(l2_ball(1.0)), Mask::path("0"))));
/// # let mut params = (vec![0.6_f32, 0.8], vec![3.0_f32]);
/// # let mut state = optimizer.init(&params)?;
/// # optimizer.step(&mut params, &(vec![-1.0_f32, -1.0], vec![-1.0_f32]), &mut state)?;
/// # assert!((gradchain::tree::tree_norm(&params.0) - 1.0).abs() < 1e-6 && params.1[0] > 3.05);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Bertsekas, [On the Goldstein-Levitin-Polyak gradient projection method](https://doi.org/10.1109/TAC.1976.1101194),
/// 1976. Optax has no such transformation but [`keep_params_nonnegative`](crate::transform::keep_params_nonnegative):
/// its users project after `apply_updates`. PyTorch: none.
pub fn project<P: Projection>(projection: P) -> P::Stage {
    projection.into_stage()
}
