//! Bounds of the parameters, and the projected gradient within them.

use std::sync::Arc;

use crate::internal::engine::Bounds;
use crate::internal::numeric::{clamp, length, with_dtype};
use crate::internal::state::{index, leaves, leaves_mut, shown};
use crate::projection::Operand;
use crate::state::Moments;
use crate::tree::{LeafSpec, Structure, Tree, TreeMut};
use crate::{Element, Error, Result};

/// Each element's bounds, as numbers of its dtype, in row-major order.
#[derive(Debug)]
pub(super) struct Within {
    leaves: Vec<Vec<[f64; 2]>>,
    pub(super) bounds: Arc<Bounds>,
}

impl Within {
    pub(super) fn new(function: &str, structure: &Structure, [lower, upper]: [&Operand; 2]) -> Result<Within> {
        let active = vec![true; structure.len()];
        for (name, operand) in [("lower", lower), ("upper", upper)] {
            if let Some(tree) = operand.tree() {
                tree.fit(function, name, structure, &active)?;
            } else if operand.fixed().is_none() {
                return Err(Error::argument(function, name, "a number or a tree", "a schedule"));
            }
        }
        let of = |leaf: &LeafSpec| {
            let [lower, upper] = [lower, upper].map(|bound| bound.of_leaf(leaf));
            let each = lower.into_iter().zip(upper).enumerate();
            each.map(|(i, (lower, upper))| check(function, leaf, i, [lower, upper])).collect::<Result<_>>()
        };
        let all = structure.leaves().iter().map(of).collect::<Result<Vec<Vec<[f64; 2]>>>>()?;
        let arrays = |which: usize| {
            let mut arrays = Moments::like(structure, &active, 0.0, |leaf| leaf.dtype().compute())?;
            for ((_, mut array), leaf) in arrays.views_mut().zip(&all) {
                array.assign_f64(&leaf.iter().map(|bounds| bounds[which]).collect::<Vec<_>>());
            }
            Ok(arrays)
        };
        let bounds = Arc::new(Bounds { lower: arrays(0)?, upper: arrays(1)? });
        Ok(Within { leaves: all, bounds })
    }

    /// Moves parameters to the nearest bound; those within the bounds stay bitwise identical.
    pub(super) fn project<P: TreeMut>(&self, params: &mut P) {
        for (leaf, bounds) in leaves_mut(params).iter_mut().zip(&self.leaves) {
            let before = leaf.to_f64();
            let after: Vec<f64> = before.iter().zip(bounds).map(|(x, bounds)| clamp(*x, *bounds)).collect();
            if before.iter().zip(&after).any(|(before, after)| before.to_bits() != after.to_bits()) {
                leaf.assign_f64(&after);
            }
        }
    }

    /// Returns `‖p − project(p − g)‖` for a finite gradient.
    pub(super) fn gradient_norm<P: Tree>(&self, params: &P, gradient: &Moments) -> f64 {
        let mut parts = Vec::new();
        for ((leaf, (_, gradient)), bounds) in leaves(params).iter().zip(gradient.views()).zip(&self.leaves) {
            for ((p, g), bounds) in leaf.to_f64().into_iter().zip(gradient.to_f64()).zip(bounds) {
                // Exactly `g` if no bound interferes, even if `p − g` is rounded.
                let [lower, upper] = bounds.map(|bound| p - bound);
                parts.push(clamp(g, [upper, lower]).abs());
            }
        }
        length(&mut || parts.iter().copied())
    }

    pub(super) fn elements(&self) -> impl Iterator<Item = [f64; 2]> + '_ {
        self.leaves.iter().flatten().copied()
    }
}

/// Rounds bounds to the dtype; fails if no number lies between them.
fn check(function: &str, leaf: &LeafSpec, i: usize, bounds: [f64; 2]) -> Result<[f64; 2]> {
    let place = || format!("{}{}", shown(leaf.path()), index(i, leaf.shape()));
    let [lower, upper] = bounds;
    if lower.is_nan() || lower == f64::INFINITY {
        return Err(Error::argument(function, "lower", "less than infinity", format!("{lower} for `{}`", place())));
    }
    if upper.is_nan() || upper < lower || upper == f64::NEG_INFINITY {
        let expected = format!("at least the lower bound of {lower}, and more than -infinity");
        return Err(Error::argument(function, "upper", &expected, format!("{upper} for `{}`", place())));
    }
    Ok(bounds.map(|bound| with_dtype!(leaf.dtype(), T => T::from_f64(bound).as_f64())))
}
