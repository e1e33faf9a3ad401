//! Which leaves of a tree are constrained, and their way there and back.

use std::collections::HashSet;
use std::sync::Arc;

use super::leaf::{Constraint, Part, Site, index, shown};
use super::numbers::{Numbers, RawLeaf};
use super::range::largest;
use crate::error::{Error, Result};
use crate::tree::{LeafRef, LeafSpec, Structure};

/// What all raw trees for parameters of one structure share.
#[derive(Debug)]
pub(super) struct Plan {
    /// The constrained parameters.
    pub(super) structure: Structure,
    /// In the order of the leaves.
    pub(super) bound: Vec<Bound>,
}

/// A leaf and its constraint.
#[derive(Debug)]
pub(super) struct Bound {
    /// The number of the leaf.
    pub(super) leaf: usize,
    constraint: Arc<dyn Constraint>,
    parts: Vec<Part>,
}

impl Plan {
    pub(super) fn new(structure: Structure, found: Vec<(usize, Arc<dyn Constraint>)>) -> Result<Plan> {
        let bind = |(leaf, constraint): (usize, Arc<dyn Constraint>)| {
            let parts = constraint.parts(&Site::new("unconstrain", &structure.leaves()[leaf]))?;
            Ok(Bound { leaf, constraint, parts })
        };
        let bound = found.into_iter().map(bind).collect::<Result<Vec<_>>>()?;
        let free = (0..structure.len()).filter(|leaf| bound.iter().all(|b| b.leaf != *leaf));
        let mut paths: HashSet<String> = free.map(|leaf| structure.leaves()[leaf].path().into()).collect();
        for (bound, part) in bound.iter().flat_map(|b| b.parts.iter().map(move |part| (b, part))) {
            let path = below(structure.leaves()[bound.leaf].path(), part.name);
            if let Some(path) = paths.replace(path) {
                return Err(Error::argument(
                    "unconstrain",
                    &path,
                    "the path of a raw leaf alone",
                    "another leaf of it",
                ));
            }
        }
        Ok(Plan { structure, bound })
    }

    pub(super) fn spec(&self, bound: &Bound) -> &LeafSpec {
        &self.structure.leaves()[bound.leaf]
    }

    /// Raw leaves that give the values of these leaves.
    pub(super) fn unconstrain(&self, leaves: &[LeafRef<'_>]) -> Result<Vec<RawLeaf>> {
        let mut all = Vec::new();
        for bound in &self.bound {
            let (spec, values) = (self.spec(bound), leaves[bound.leaf].to_f64());
            let mut raw = vec![0.0; bound.len()];
            if spec.len() > 0 {
                bound.constraint.unconstrain(&Site::new("unconstrain", spec), &values, &mut raw)?;
            }
            bound.split(spec, &raw, &mut all);
        }
        Ok(all)
    }

    /// The values of each constrained leaf in turn.
    pub(super) fn constrain(&self, raw: &[RawLeaf]) -> Result<Vec<Vec<f64>>> {
        self.bound.iter().map(|bound| bound.constrain(self.spec(bound), raw)).collect()
    }

    /// The gradients of all raw leaves.
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

/// The path of a raw leaf.
fn below(path: &str, name: &str) -> String {
    if path.is_empty() { name.into() } else { format!("{path}/{name}") }
}

impl Bound {
    /// How many raw numbers.
    fn len(&self) -> usize {
        self.parts.iter().map(|part| part.shape.iter().product::<usize>()).sum()
    }

    /// The raw numbers, all finite.
    fn gather(&self, function: &str, spec: &LeafSpec, raw: &[RawLeaf]) -> Result<Vec<f64>> {
        let mut numbers = Vec::with_capacity(self.len());
        for raw in raw.iter().filter(|raw| raw.leaf == self.leaf) {
            let start = numbers.len();
            raw.numbers.append_to(&mut numbers);
            if let Some(i) = numbers[start..].iter().position(|x| !x.is_finite()) {
                let place = format!("{}{}", below(spec.path(), raw.name), index(i, &raw.shape));
                return Err(Error::argument(function, &place, "finite", numbers[start + i]));
            }
        }
        Ok(numbers)
    }

    fn split(&self, spec: &LeafSpec, mut values: &[f64], to: &mut Vec<RawLeaf>) {
        for Part { name, shape } in &self.parts {
            let (own, rest) = values.split_at(shape.iter().product());
            let numbers = Numbers::of(spec.dtype(), own);
            to.push(RawLeaf { leaf: self.leaf, name, shape: shape.clone(), numbers });
            values = rest;
        }
    }

    fn constrain(&self, spec: &LeafSpec, raw: &[RawLeaf]) -> Result<Vec<f64>> {
        let raw = self.gather("constrain", spec, raw)?;
        let mut values = vec![0.0; spec.len()];
        if values.is_empty() {
            return Ok(values);
        }
        self.constraint.constrain(&Site::new("constrain", spec), &raw, &mut values)?;
        let most = largest(spec.dtype());
        // Half a unit in the last place more than the largest number is still rounded to it; that is not worth a word.
        if let Some(i) = values.iter().position(|x| !(x.abs() <= most)) {
            let place = format!("{}{}", shown(spec.path()), index(i, spec.shape()));
            let expected = format!("within the range of {}", spec.dtype());
            return Err(Error::argument("constrain", &place, &expected, values[i]));
        }
        Ok(values)
    }

    fn pull_back(&self, spec: &LeafSpec, raw: &[RawLeaf], mut gradient: Vec<f64>) -> Result<Vec<f64>> {
        let raw = self.gather("pull_back", spec, raw)?;
        let mut pulled = vec![0.0; raw.len()];
        if spec.len() == 0 {
            return Ok(pulled);
        }
        let scale = tame(&mut gradient);
        self.constraint.pull_back(&Site::new("pull_back", spec), &raw, &gradient, &mut pulled)?;
        if gradient.iter().all(|g| g.is_finite()) {
            pulled.iter_mut().for_each(|g| *g = (*g * scale).clamp(-f64::MAX, f64::MAX));
        }
        Ok(pulled)
    }
}

/// Scales gradients whose sums and products would overflow; what they were divided by. A power of two, so that no digit
/// is lost.
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
