//! Vectors in a leaf: along an axis, or across it.

use crate::Result;
use crate::internal::numeric::sum_tile;
use crate::internal::state::ConstrainedLeaf;

/// The positions of a vector's elements in a row-major leaf: two nested strides.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lane {
    pub(super) start: usize,
    outer: (usize, usize),
    inner: (usize, usize),
}

impl Lane {
    pub(super) fn len(&self) -> usize {
        self.outer.0 * self.inner.0
    }

    fn places(self) -> impl Iterator<Item = usize> {
        let Lane { start, outer, inner } = self;
        (0..outer.0).flat_map(move |a| (0..inner.0).map(move |b| start + a * outer.1 + b * inner.1))
    }

    pub(super) fn read(self, leaf: &[f64], to: &mut Vec<f64>) {
        to.clear();
        to.extend(self.places().map(|i| leaf[i]));
    }

    pub(super) fn write(self, from: &[f64], leaf: &mut [f64]) {
        self.places().zip(from).for_each(|(i, x)| leaf[i] = *x);
    }
}

/// Returns the non-empty vectors along an axis, by default the last.
pub(super) fn along(leaf: &ConstrainedLeaf<'_>, axis: Option<usize>) -> Result<impl Iterator<Item = Lane> + use<>> {
    let [outer, len, inner] = split(leaf, axis.or(leaf.shape().len().checked_sub(1)))?;
    if len == 0 && outer * inner > 0 {
        return Err(leaf.refuse("nonempty vectors", format!("the shape {:?}", leaf.shape())));
    }
    let lane = move |a, b| Lane { start: a * len * inner + b, outer: (1, 0), inner: (len, inner) };
    Ok((0..outer).flat_map(move |a| (0..inner).map(move |b| lane(a, b))))
}

/// Returns the elements at each index of an axis; fails if there are none.
pub(super) fn across(leaf: &ConstrainedLeaf<'_>, axis: usize) -> Result<impl Iterator<Item = Lane> + use<>> {
    let [outer, len, inner] = split(leaf, Some(axis))?;
    if len > 0 && outer * inner == 0 {
        return Err(leaf.refuse("nonempty vectors", format!("the shape {:?}", leaf.shape())));
    }
    Ok((0..len).map(move |j| Lane { start: j * inner, outer: (outer, len * inner), inner: (inner, 1) }))
}

/// Returns the numbers of elements before, along and after an axis.
fn split(leaf: &ConstrainedLeaf<'_>, axis: Option<usize>) -> Result<[usize; 3]> {
    let shape = leaf.shape();
    match axis {
        Some(axis) if axis < shape.len() => {
            Ok([shape[..axis].iter().product(), shape[axis], shape[axis + 1..].iter().product()])
        }
        axis => {
            let expected = format!("an array with at least {} axes", axis.map_or(1, |axis| axis + 1));
            Err(leaf.refuse(&expected, format!("the shape {shape:?}")))
        }
    }
}

/// A Euclidean norm as a product of two factors that neither overflow nor underflow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Length {
    most: f64,
    rest: f64,
}

impl Length {
    pub(super) fn value(self) -> f64 {
        self.most * self.rest
    }

    pub(super) fn divide(self, x: f64) -> f64 {
        x / self.rest / self.most
    }
}

/// Normalizes a vector; returns its former norm unless zero.
pub(super) fn normalize(vector: &mut [f64]) -> Option<Length> {
    let most = vector.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
    if most == 0.0 {
        return None;
    }
    vector.iter_mut().for_each(|x| *x /= most);
    let rest = sum_tile(vector, |x: f64| x * x).sqrt();
    vector.iter_mut().for_each(|x| *x /= rest);
    Some(Length { most, rest })
}
