//! Eigenvalues and eigenvectors of symmetric matrices: reflections to three diagonals, then the QL iteration with
//! shifts.
//!
//! Nothing depends on the number of threads or the instruction set. Values are right to the last digits of the largest.

use super::isa::{Isa, Job, dispatch};
use super::order::largest_first;
use super::sums::{sum_pairs, sum_tile};

/// A decomposition, and room for the next; grows to the largest matrix.
#[derive(Debug, Default)]
pub(crate) struct Symmetric {
    n: usize,
    /// The matrix; then, in each row right of the diagonal, what was reflected along.
    matrix: Vec<f64>,
    /// Eigenvectors, one after another.
    vectors: Vec<f64>,
    diagonal: Vec<f64>,
    /// What is beside the diagonal, and a zero.
    beside: Vec<f64>,
    room: Vec<f64>,
    /// Eigenvectors by their values, the largest first.
    order: Vec<(f64, usize)>,
    /// What the elements were divided by.
    scale: f64,
}

/// Two or three times are usual for each eigenvalue.
const ITERATIONS: usize = 60;

impl Symmetric {
    /// Decomposes the matrix of `n × n` with these elements. All is NaN if one is not finite.
    pub(crate) fn decompose(&mut self, isa: Isa, n: usize, element: impl Fn(usize, usize) -> f64) {
        self.n = n;
        self.matrix.clear();
        self.matrix.extend((0..n).flat_map(|i| (0..n).map(move |j| (i, j))).map(|(i, j)| element(i, j)));
        let finite = self.matrix.iter().all(|x| x.is_finite());
        let largest = self.matrix.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
        self.scale = if largest > 0.0 { largest } else { 1.0 };
        // Scaled, so that squares neither overflow nor vanish.
        self.matrix.iter_mut().for_each(|x| *x /= self.scale);
        self.vectors.clear();
        self.vectors.resize(n * n, if finite { 0.0 } else { f64::NAN });
        for line in [&mut self.diagonal, &mut self.beside, &mut self.room] {
            line.clear();
            line.resize(n, if finite { 0.0 } else { f64::NAN });
        }
        if finite && n > 0 {
            let Symmetric { matrix, vectors, diagonal, beside, room, .. } = self;
            dispatch(isa, Decompose { n, matrix, vectors, diagonal, beside, room });
        }
        self.order.clear();
        self.order.extend(self.diagonal.iter().copied().zip(0..));
        largest_first(&mut self.order);
    }

    /// The eigenvalue of this number, the largest first.
    pub(crate) fn value(&self, k: usize) -> f64 {
        self.order[k].0 * self.scale
    }

    /// The eigenvector of this number, of length 1.
    pub(crate) fn vector(&self, k: usize) -> &[f64] {
        &self.vectors[self.order[k].1 * self.n..][..self.n]
    }
}

struct Decompose<'a> {
    n: usize,
    matrix: &'a mut [f64],
    vectors: &'a mut [f64],
    diagonal: &'a mut [f64],
    beside: &'a mut [f64],
    room: &'a mut [f64],
}

impl Job for Decompose<'_> {
    type Output = ();

    #[inline(always)]
    fn run(mut self) {
        self.reduce();
        self.build();
        for first in 0..self.n {
            for _ in 0..ITERATIONS {
                let last = self.last(first);
                if last == first {
                    break;
                }
                self.iterate(first, last);
            }
        }
    }
}

impl Decompose<'_> {
    /// Leaves three diagonals of the matrix.
    #[inline(always)]
    fn reduce(&mut self) {
        let n = self.n;
        for k in 0..n {
            let (head, below) = self.matrix.split_at_mut((k + 1) * n);
            let row = &mut head[k * n..];
            self.diagonal[k] = row[k];
            let mirror = &mut row[k + 1..];
            if mirror.is_empty() {
                continue;
            }
            let norm = sum_tile(mirror, |x: f64| x * x).sqrt();
            self.beside[k] = -norm.copysign(mirror[0]);
            mirror[0] += norm.copysign(mirror[0]);
            let squares = sum_tile(mirror, |x: f64| x * x);
            if squares == 0.0 {
                continue;
            }
            // What is left of the matrix is reflected from both sides.
            let along = &mut self.room[k + 1..];
            for (along, row) in along.iter_mut().zip(below.chunks_exact(n)) {
                *along = 2.0 / squares * sum_pairs(&row[k + 1..], mirror, |x, y| x * y);
            }
            let share = sum_pairs(along, mirror, |x, y| x * y) / squares;
            along.iter_mut().zip(&*mirror).for_each(|(x, m)| *x -= share * m);
            for (i, row) in below.chunks_exact_mut(n).enumerate() {
                let (m, a) = (mirror[i], along[i]);
                for ((x, mirror), along) in row[k + 1..].iter_mut().zip(&*mirror).zip(&*along) {
                    *x -= m * along + a * mirror;
                }
            }
        }
    }

    /// Multiplies the reflections: the columns of their product lie one after another.
    #[inline(always)]
    fn build(&mut self) {
        let n = self.n;
        self.vectors.iter_mut().step_by(n + 1).for_each(|x| *x = 1.0);
        for k in (0..n - 1).rev() {
            let mirror = &self.matrix[k * n + k + 1..(k + 1) * n];
            let squares = sum_tile(mirror, |x: f64| x * x);
            if squares != 0.0 {
                for column in self.vectors[(k + 1) * n..].chunks_exact_mut(n) {
                    let column = &mut column[k + 1..];
                    let along = 2.0 * sum_pairs(mirror, column, |x, y| x * y) / squares;
                    column.iter_mut().zip(mirror).for_each(|(x, m)| *x -= along * m);
                }
            }
        }
    }

    /// How far the block reaches that begins here and falls apart nowhere.
    #[inline(always)]
    fn last(&self, first: usize) -> usize {
        let negligible = |i: &usize| {
            let size = self.diagonal[*i].abs() + self.diagonal[*i + 1].abs();
            // As good as nothing beside these two, or beside the largest element, which is 1.
            self.beside[*i].abs() <= f64::EPSILON * size || self.beside[*i].abs() < f64::EPSILON * f64::EPSILON
        };
        (first..self.n - 1).find(negligible).unwrap_or(self.n - 1)
    }

    /// One step of the QL iteration on a block, with the shift of Wilkinson.
    #[inline(always)]
    fn iterate(&mut self, first: usize, last: usize) {
        let Decompose { n, vectors, diagonal: d, beside: e, .. } = self;
        let half = (d[first + 1] - d[first]) / (2.0 * e[first]);
        let root = (half * half + 1.0).sqrt();
        let mut g = d[last] - d[first] + e[first] / (half + root.copysign(half));
        let (mut sin, mut cos, mut shifted) = (1.0, 1.0, 0.0);
        for i in (first..last).rev() {
            let (f, b) = (sin * e[i], cos * e[i]);
            let r = (f * f + g * g).sqrt();
            e[i + 1] = r;
            if r == 0.0 {
                // It falls apart here.
                d[i + 1] -= shifted;
                e[last] = 0.0;
                return;
            }
            (sin, cos) = (f / r, g / r);
            let next = d[i + 1] - shifted;
            let turned = (d[i] - next) * sin + 2.0 * cos * b;
            shifted = sin * turned;
            d[i + 1] = next + shifted;
            g = cos * turned - b;
            let (head, tail) = vectors.split_at_mut((i + 1) * *n);
            for (x, y) in head[i * *n..].iter_mut().zip(&mut tail[..*n]) {
                (*x, *y) = (cos * *x - sin * *y, sin * *x + cos * *y);
            }
        }
        d[first] -= shifted;
        e[first] = g;
        e[last] = 0.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numeric::isa::current_isa;

    fn check(n: usize, a: impl Fn(usize, usize) -> f64, scale: f64) {
        let mut found = Symmetric::default();
        found.decompose(current_isa(), n, &a);
        for k in 0..n {
            let (value, x) = (found.value(k), found.vector(k));
            assert!(k == 0 || value <= found.value(k - 1));
            for l in 0..n {
                let dot: f64 = x.iter().zip(found.vector(l)).map(|(x, y)| x * y).sum();
                assert!((dot - f64::from(k == l)).abs() < 1e-13, "{n}: {k}, {l}");
                let image: f64 = (0..n).map(|j| a(l, j) * x[j]).sum();
                assert!((image - value * x[l]).abs() < 1e-13 * scale * n as f64, "{n}: {k}, {l}");
            }
        }
    }

    #[test]
    fn vectors_are_orthonormal_and_keep_their_direction() {
        for n in [1, 2, 3, 5, 17, 64, 101] {
            let a = |i: usize, j: usize| ((1 + i + j + 7 * i * j) as f64).sin() * 1e3;
            check(n, a, 1e3);
            // Of rank 3, and with values that fall by a factor of 10.
            check(n, |i, j| (0..3).map(|k| ((i * k + i) as f64).cos() * ((j * k + j) as f64).cos()).sum(), 3.0);
            check(n, |i, j| if i == j { 10.0_f64.powi(-(i as i32)) } else { 0.0 }, 1.0);
            check(n, |_, _| 0.0, 1.0);
            check(n, |i, j| f64::from(i == j) * 1e-200, 1e-200);
        }
        check(
            4,
            |i, j| [[2.0, 1.0, 0.0, 0.0], [1.0, 2.0, 0.0, 0.0], [0.0, 0.0, 1.0, 2.0], [0.0, 0.0, 2.0, 1.0]][i][j],
            3.0,
        );
    }

    #[test]
    fn what_is_not_finite_stays_so() {
        let mut found = Symmetric::default();
        found.decompose(current_isa(), 2, |i, j| if i == j { f64::INFINITY } else { 0.0 });
        assert!(found.value(0).is_nan() && found.vector(1).iter().all(|x| x.is_nan()));
        found.decompose(current_isa(), 0, |_, _| 0.0);
    }
}
