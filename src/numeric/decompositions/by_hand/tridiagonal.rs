//! Eigenvalues and eigenvectors of symmetric matrices: reflections to three diagonals, then the QL iteration with
//! shifts.

use super::Room;
use crate::numeric::isa::{Isa, Job, dispatch};
use crate::numeric::sums::{sum_pairs, sum_tile};

/// Two or three times are usual for each eigenvalue.
const ITERATIONS: usize = 60;

/// Eigenvalues of a symmetric matrix, which is lost, in no order, and its eigenvectors, which are zeros before: whether
/// they were found.
pub(in super::super) fn eigen(
    isa: Isa,
    matrix: &mut [f64],
    n: usize,
    vectors: &mut [f64],
    values: &mut [f64],
    Room { beside, along }: &mut Room,
) -> bool {
    for line in [&mut *beside, &mut *along] {
        line.clear();
        line.resize(n, 0.0);
    }
    n == 0 || dispatch(isa, Decompose { n, matrix, vectors, diagonal: values, beside, room: along })
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
    type Output = bool;

    #[inline(always)]
    fn run(mut self) -> bool {
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
        (0..self.n).all(|first| self.last(first) == first)
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
