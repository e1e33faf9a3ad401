//! The constrained leaves of a tree, and the maps between raw and constrained numbers.

use std::collections::HashSet;
use std::sync::Arc;

use super::numbers::{Numbers, RawLeaf};
use super::range::largest;
use crate::internal::numeric::elements;
use crate::internal::state::{ConstrainedLeaf, Constraint, Part, index, shown};
use crate::tree::{LeafRef, LeafSpec, Structure, Tree, for_each_leaf};
use crate::{Error, Result};

/// The common part of all raw trees for one structure.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) structure: Structure,
    /// In leaf order.
    pub(super) bound: Vec<Bound>,
}

#[derive(Debug)]
pub(super) struct Bound {
    pub(super) leaf: usize,
    constraint: Arc<dyn Constraint>,
    parts: Vec<BoundPart>,
    /// Index of the first part among all raw leaves.
    first: usize,
}

/// A raw leaf: its path and shape, and the number of its elements.
#[derive(Debug)]
struct BoundPart {
    path: Arc<str>,
    shape: Vec<usize>,
    len: usize,
}

impl Plan {
    /// Binds constraints to leaves; both in order.
    pub(super) fn new(structure: Structure, found: Vec<(usize, Arc<dyn Constraint>)>) -> Result<Plan> {
        let mut paths: HashSet<&str> = structure.paths().collect();
        found.iter().for_each(|(leaf, _)| _ = paths.remove(structure.leaves()[*leaf].path()));
        let (mut bound, mut first) = (Vec::with_capacity(found.len()), 0);
        for (leaf, constraint) in found {
            let spec = &structure.leaves()[leaf];
            let parts = constraint.parts(&ConstrainedLeaf::new("unconstrain", spec))?;
            let parts = bound_parts(spec, parts)?;
            let count = parts.len();
            if count == 0 {
                let found = format!("none for {constraint:?}");
                return Err(Error::argument("unconstrain", shown(spec.path()), "made of at least one raw leaf", found));
            }
            bound.push(Bound { leaf, constraint, parts, first });
            first += count;
        }
        for BoundPart { path, .. } in bound.iter().flat_map(|bound: &Bound| &bound.parts) {
            if !paths.insert(path) {
                return Err(Error::argument(
                    "unconstrain",
                    path,
                    "the path of only one raw leaf",
                    "another leaf of it",
                ));
            }
        }
        drop(paths);
        Ok(Plan { structure, bound })
    }

    /// Returns true if a tree has these leaves, of any dtypes, in order.
    pub(super) fn fits<T: Tree + ?Sized>(&self, tree: &T) -> bool {
        let (mut leaves, mut same) = (self.structure.leaves().iter(), true);
        for_each_leaf(tree, |path, leaf| {
            same &= leaves.next().is_some_and(|spec| spec.path() == path && spec.shape() == leaf.shape());
        });
        same && leaves.next().is_none()
    }

    pub(super) fn spec(&self, bound: &Bound) -> &LeafSpec {
        &self.structure.leaves()[bound.leaf]
    }

    pub(super) fn unconstrain(&self, leaves: &[LeafRef<'_>]) -> Result<Vec<RawLeaf>> {
        let mut all = Vec::new();
        for bound in &self.bound {
            let (spec, values) = (self.spec(bound), leaves[bound.leaf].to_f64());
            let mut raw = vec![0.0; bound.len()];
            if spec.len() > 0 {
                bound.constraint.unconstrain(&ConstrainedLeaf::new("unconstrain", spec), &values, &mut raw)?;
            }
            bound.split(spec, &raw, &mut all);
        }
        Ok(all)
    }

    pub(super) fn constrain(&self, raw: &[RawLeaf]) -> Result<Vec<Vec<f64>>> {
        self.bound.iter().map(|bound| bound.constrain(self.spec(bound), raw)).collect()
    }

    pub(super) fn pull_back(&self, raw: &[RawLeaf], gradient: &[LeafRef<'_>]) -> Result<Vec<RawLeaf>> {
        let mut all = Vec::new();
        for bound in &self.bound {
            let spec = self.spec(bound);
            let pulled = bound.pull_back(spec, raw, gradient[bound.leaf].to_f64())?;
            bound.split(spec, &pulled, &mut all);
        }
        Ok(all)
    }
}

fn bound_parts(spec: &LeafSpec, parts: Vec<Part>) -> Result<Vec<BoundPart>> {
    let mut total = 0;
    let one = |Part { name, shape }: Part| {
        let path = below(spec.path(), name);
        let fits = |len: usize| {
            let sum = len.checked_add(total)?;
            (sum <= isize::MAX as usize / size_of::<f64>()).then_some((len, sum))
        };
        let Some((len, sum)) = elements(&shape).and_then(fits) else {
            let (expected, found) = ("of raw leaves of at most isize::MAX bytes", format!("shape {shape:?}"));
            return Err(Error::argument("unconstrain", &path, expected, found));
        };
        total = sum;
        Ok(BoundPart { path, shape, len })
    };
    parts.into_iter().map(one).collect()
}

fn below(path: &str, name: &str) -> Arc<str> {
    if path.is_empty() { name.into() } else { format!("{path}/{name}").into() }
}

impl Bound {
    fn len(&self) -> usize {
        self.parts.iter().map(|part| part.len).sum()
    }

    /// Collects the raw numbers, which must be finite.
    fn gather(&self, function: &str, raw: &[RawLeaf]) -> Result<Vec<f64>> {
        let mut numbers = Vec::with_capacity(self.len());
        for raw in &raw[self.first..][..self.parts.len()] {
            let start = numbers.len();
            raw.numbers.append_to(&mut numbers);
            if let Some(i) = numbers[start..].iter().position(|x| !x.is_finite()) {
                let place = format!("{}{}", raw.path, index(i, &raw.shape));
                return Err(Error::argument(function, &place, "finite", numbers[start + i]));
            }
        }
        Ok(numbers)
    }

    fn split(&self, spec: &LeafSpec, mut values: &[f64], to: &mut Vec<RawLeaf>) {
        for BoundPart { path, shape, len } in &self.parts {
            let (own, rest) = values.split_at(*len);
            let numbers = Numbers::of(spec.dtype(), own);
            to.push(RawLeaf { leaf: self.leaf, path: path.clone(), shape: shape.clone(), numbers });
            values = rest;
        }
    }

    fn constrain(&self, spec: &LeafSpec, raw: &[RawLeaf]) -> Result<Vec<f64>> {
        let raw = self.gather("constrain", raw)?;
        let mut values = vec![0.0; spec.len()];
        if values.is_empty() {
            return Ok(values);
        }
        self.constraint.constrain(&ConstrainedLeaf::new("constrain", spec), &raw, &mut values)?;
        let most = largest(spec.dtype());
        // Also refuses values beyond the largest number that would round to it.
        if let Some(i) = values.iter().position(|x| x.is_nan() || x.abs() > most) {
            let place = format!("{}{}", shown(spec.path()), index(i, spec.shape()));
            let expected = format!("within the range of {}", spec.dtype());
            return Err(Error::argument("constrain", &place, &expected, values[i]));
        }
        Ok(values)
    }

    fn pull_back(&self, spec: &LeafSpec, raw: &[RawLeaf], mut gradient: Vec<f64>) -> Result<Vec<f64>> {
        let raw = self.gather("pull_back", raw)?;
        let mut pulled = vec![0.0; raw.len()];
        if spec.len() == 0 {
            return Ok(pulled);
        }
        let scale = tame(&mut gradient);
        self.constraint.pull_back(&ConstrainedLeaf::new("pull_back", spec), &raw, &gradient, &mut pulled)?;
        pulled.iter_mut().for_each(|g| *g *= scale);
        if gradient.iter().all(|g| g.is_finite()) {
            // Infinities overflowed; NaN is a difference of infinities, without a direction.
            pulled.iter_mut().for_each(|g| *g = g.clamp(-f64::MAX, f64::MAX));
            if pulled.iter().any(|g| g.is_nan()) {
                let found = "raw numbers so close to a singularity that the gradient overflows";
                return Err(ConstrainedLeaf::new("pull_back", spec).refuse("at a point that has a gradient", found));
            }
        }
        Ok(pulled)
    }
}

/// Scales gradients against overflow of sums and products; returns the divisor, a power of two.
fn tame(gradient: &mut [f64]) -> f64 {
    const LARGE: f64 = 1.157920892373162e77; // 2²⁵⁶
    let most = gradient.iter().fold(0.0, |most: f64, g| most.max(g.abs()));
    if most <= LARGE || !most.is_finite() {
        return 1.0;
    }
    let scale = f64::from_bits(most.to_bits() & 0x7ff0_0000_0000_0000);
    gradient.iter_mut().for_each(|g| *g /= scale);
    scale
}
