//! Eigenvalues and eigenvectors of symmetric matrices. The error of each eigenvalue is a few units in the last place of
//! the largest.

use faer::diag::DiagMut;
use faer::linalg::evd::{ComputeEigenvectors, self_adjoint_evd, self_adjoint_evd_scratch};
use faer::{MatMut, MatRef, Par};

use super::{Scratch, scale, zeros};
use crate::numeric::order::largest_first;

/// A decomposition with scratch space, which grows to the largest matrix.
#[derive(Debug, Default)]
pub struct Symmetric {
    n: usize,
    matrix: Vec<f64>,
    vectors: Vec<f64>,
    values: Vec<f64>,
    scratch: Scratch,
    /// Eigenvalues with their vectors' indices, decreasing.
    order: Vec<(f64, usize)>,
    /// The number by which all elements were divided.
    scale: f64,
}

impl Symmetric {
    /// Decomposes an `n × n` matrix.
    ///
    /// All results are NaN if an element is not finite, or if the iteration does not converge, which has not been
    /// observed.
    #[doc(hidden)]
    pub fn decompose(&mut self, n: usize, element: impl Fn(usize, usize) -> f64) {
        self.n = n;
        self.matrix.clear();
        self.matrix.extend((0..n).flat_map(|i| (0..n).map(move |j| (i, j))).map(|(i, j)| element(i, j)));
        let scale = scale(&mut self.matrix);
        self.scale = scale.unwrap_or(1.0);
        let (vectors, values) = (zeros(&mut self.vectors, n * n), zeros(&mut self.values, n));
        if scale.is_none() || !decompose(&self.matrix, n, vectors, values, &mut self.scratch) {
            vectors.fill(f64::NAN);
            values.fill(f64::NAN);
        }
        self.order.clear();
        self.order.extend(self.values.iter().copied().zip(0..));
        largest_first(&mut self.order);
    }

    /// Returns eigenvalue `k`, the largest first.
    #[doc(hidden)]
    pub fn value(&self, k: usize) -> f64 {
        self.order[k].0 * self.scale
    }

    /// Returns eigenvector `k`, of length 1.
    #[doc(hidden)]
    pub fn vector(&self, k: usize) -> &[f64] {
        &self.vectors[self.order[k].1 * self.n..][..self.n]
    }
}

/// Computes unordered eigenvalues and eigenvectors; returns whether it converged.
fn decompose(matrix: &[f64], n: usize, vectors: &mut [f64], values: &mut [f64], scratch: &mut Scratch) -> bool {
    if n == 0 {
        return true;
    }
    let memory = scratch.of(self_adjoint_evd_scratch::<f64>(n, ComputeEigenvectors::Yes, Par::Seq, Default::default()));
    let matrix = MatRef::from_column_major_slice(matrix, n, n);
    let (vectors, values) = (MatMut::from_column_major_slice_mut(vectors, n, n), DiagMut::from_slice_mut(values));
    self_adjoint_evd(matrix, values, Some(vectors), Par::Seq, memory, Default::default()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(n: usize, a: impl Fn(usize, usize) -> f64, scale: f64) {
        let mut found = Symmetric::default();
        found.decompose(n, &a);
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
            // Of rank 3, and with values decreasing tenfold.
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
    fn nonfinite_matrices_decompose_to_nan() {
        let mut found = Symmetric::default();
        found.decompose(2, |i, j| if i == j { f64::INFINITY } else { 0.0 });
        assert!(found.value(0).is_nan() && found.vector(1).iter().all(|x| x.is_nan()));
        found.decompose(0, |_, _| 0.0);
    }
}
