//! The first left singular vectors of a matrix that has no fewer rows than columns.

use super::{Room, rotate};
use crate::numeric::isa::Isa;
use crate::numeric::order::largest_first;
use crate::numeric::sums::{sum_pairs, sum_tile};

/// Room for the columns; grows to the largest matrix.
#[derive(Debug, Default)]
pub(crate) struct Svd {
    /// The columns one after another.
    columns: Vec<f64>,
    /// The norm of each column, and its number; the largest first at the end.
    norms: Vec<(f64, usize)>,
    unit: Vec<f64>,
    room: Room,
}

/// A singular value is zero if it is as much smaller than the largest, for each row.
const NEGLIGIBLE: f64 = f64::EPSILON;

impl Svd {
    /// Hands out the first `rank` left singular vectors of the matrix of `rows × cols` whose element `[i, j]` is
    /// `element(i, j)`, one after another. Where singular values are zero, which vectors there are is arbitrary but for
    /// being at right angles to the others: those of the axes, made so. All are NaN if an element is not finite, or if
    /// the iteration does not end, of which no case is known.
    pub(crate) fn left(
        &mut self,
        isa: Isa,
        [rows, cols]: [usize; 2],
        rank: usize,
        element: impl Fn(usize, usize) -> f64,
        mut vector: impl FnMut(usize, &[f64]),
    ) {
        self.columns.clear();
        self.columns.extend((0..cols).flat_map(|j| (0..rows).map(move |i| (i, j))).map(|(i, j)| element(i, j)));
        let largest = self.columns.iter().fold(0.0, |most: f64, x| if x.is_finite() { most.max(x.abs()) } else { *x });
        self.unit.clear();
        self.unit.resize(rows, f64::NAN);
        if self.columns.iter().any(|x| !x.is_finite()) {
            return (0..rank).for_each(|k| vector(k, &self.unit));
        }
        // Scaled, so that squares neither overflow nor vanish.
        if largest > 0.0 {
            self.columns.iter_mut().for_each(|x| *x /= largest);
        }
        if !rotate(isa, &mut self.columns, [rows, cols], &mut self.room) {
            return (0..rank).for_each(|k| vector(k, &self.unit));
        }
        self.norms.clear();
        let norms = self.columns.chunks_exact(rows.max(1)).map(norm).enumerate();
        self.norms.extend(norms.map(|(j, norm)| (norm, j)));
        largest_first(&mut self.norms);
        let least = self.norms.first().map_or(0.0, |norm| norm.0) * NEGLIGIBLE * rows as f64;
        for k in 0..rank.min(cols) {
            let (norm, j) = self.norms[k];
            if norm > least {
                self.columns[j * rows..][..rows].iter_mut().for_each(|x| *x /= norm);
            } else {
                self.complete(rows, k);
            }
            vector(k, &self.columns[j * rows..][..rows]);
        }
    }

    /// Puts a vector at right angles to the first `k` in the place of the next: the axis that is farthest from them,
    /// the first of several, made so.
    fn complete(&mut self, rows: usize, k: usize) {
        // How much of an axis lies in the others' space is the sum of their squares along it.
        let inside = |axis: usize| -> f64 {
            self.norms[..k].iter().map(|&(_, j)| self.columns[j * rows + axis]).map(|x| x * x).sum()
        };
        let axis = (0..rows).fold((0, f64::INFINITY), |best, axis| {
            let found = inside(axis);
            // What differs by rounding only is the same.
            if found < best.1 - 1e-9 { (axis, found) } else { best }
        });
        self.unit.fill(0.0);
        self.unit[axis.0] = 1.0;
        // Twice is enough for right angles to the last digit.
        for _ in 0..2 {
            for &(_, j) in &self.norms[..k] {
                let other = &self.columns[j * rows..][..rows];
                let along = sum_pairs(&self.unit, other, |x, y| x * y);
                self.unit.iter_mut().zip(other).for_each(|(x, y)| *x -= along * y);
            }
        }
        let length = norm(&self.unit);
        let j = self.norms[k].1;
        self.columns[j * rows..][..rows].iter_mut().zip(&self.unit).for_each(|(x, unit)| *x = unit / length);
    }
}

fn norm(x: &[f64]) -> f64 {
    sum_tile(x, |x| x * x).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numeric::isa::current_isa;

    /// The first vectors, one after another.
    fn left(size: [usize; 2], rank: usize, element: impl Fn(usize, usize) -> f64) -> Vec<Vec<f64>> {
        let mut found = Vec::new();
        Svd::default().left(current_isa(), size, rank, element, |_, vector| found.push(vector.to_vec()));
        found
    }

    fn dot(x: &[f64], y: &[f64]) -> f64 {
        x.iter().zip(y).map(|(x, y)| x * y).sum()
    }

    #[test]
    fn vectors_are_orthonormal_and_singular() {
        for (n, [rows, cols]) in [[5, 3], [7, 7], [40, 17], [1, 1], [3, 0], [600, 9]].into_iter().enumerate() {
            let a =
                |i: usize, j: usize| ((1 + n + 3 * i * i + 7 * j * i + j) as f64).sin() * 10.0_f64.powi(j as i32 % 5);
            let vectors = left([rows, cols], cols, a);
            assert_eq!(vectors.len(), cols);
            let (mut last, mut most) = (f64::INFINITY, 0.0_f64);
            for (k, u) in vectors.iter().enumerate() {
                for (l, v) in vectors.iter().enumerate() {
                    let expected = if k == l { 1.0 } else { 0.0 };
                    assert!((dot(u, v) - expected).abs() < 1e-12, "{rows}×{cols}: {k}, {l}");
                }
                // A·Aᵀ·u = σ²·u, with σ falling.
                let across: Vec<f64> = (0..cols).map(|j| (0..rows).map(|i| a(i, j) * u[i]).sum()).collect();
                let squared = dot(&across, &across);
                assert!(squared <= last * (1.0 + 1e-12));
                (last, most) = (squared, most.max(squared));
                for (i, u) in u.iter().enumerate() {
                    let back: f64 = (0..cols).map(|j| a(i, j) * across[j]).sum();
                    assert!((back - squared * u).abs() <= 1e-13 * most, "{rows}×{cols}: {k}, {i}");
                }
            }
        }
    }

    #[test]
    fn what_is_missing_is_made_up() {
        assert_eq!(left([3, 2], 2, |_, _| 0.0), [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]);
        // One dimension only.
        let found = left([3, 2], 2, |i, _| if i == 0 { 3.0 } else { 0.0 });
        assert!((found[0][0].abs() - 1.0).abs() < 1e-15);
        assert_eq!(found[1], [0.0, 1.0, 0.0]);
        assert!(left([2, 2], 2, |i, _| if i == 0 { f64::NAN } else { 1.0 }).concat().iter().all(|x| x.is_nan()));
    }
}
