//! The first left singular vectors of a matrix with at least as many rows as columns.

use faer::diag::DiagMut;
use faer::linalg::svd::{ComputeSvdVectors, svd, svd_scratch};
use faer::{MatMut, MatRef, Par};

use super::{Scratch, scale, zeros};

/// Scratch space; grows to the largest matrix.
#[derive(Debug, Default)]
pub struct Svd {
    columns: Vec<f64>,
    vectors: Vec<f64>,
    values: Vec<f64>,
    scratch: Scratch,
}

impl Svd {
    /// Calls `vector` with the first `rank` left singular vectors of a `rows × cols` matrix, in order.
    ///
    /// Vectors of zero singular values are arbitrary but orthogonal. All are NaN if an element is not finite, or if the
    /// iteration does not converge, which has not been observed.
    #[doc(hidden)]
    pub fn left(
        &mut self,
        [rows, cols]: [usize; 2],
        rank: usize,
        element: impl Fn(usize, usize) -> f64,
        mut vector: impl FnMut(usize, &[f64]),
    ) {
        self.columns.clear();
        self.columns.extend((0..cols).flat_map(|j| (0..rows).map(move |i| (i, j))).map(|(i, j)| element(i, j)));
        let (vectors, values) = (zeros(&mut self.vectors, rows * cols), zeros(&mut self.values, cols));
        let finite = scale(&mut self.columns).is_some();
        if !finite || !decompose(&self.columns, [rows, cols], vectors, values, &mut self.scratch) {
            vectors.fill(f64::NAN);
        }
        vectors.chunks_exact(rows.max(1)).take(rank).enumerate().for_each(|(k, found)| vector(k, found));
    }
}

/// Computes left singular vectors, by decreasing value; returns whether it converged.
fn decompose(
    columns: &[f64],
    [rows, cols]: [usize; 2],
    vectors: &mut [f64],
    values: &mut [f64],
    scratch: &mut Scratch,
) -> bool {
    let [left, right] = [ComputeSvdVectors::Thin, ComputeSvdVectors::No];
    let memory = scratch.of(svd_scratch::<f64>(rows, cols, left, right, Par::Seq, Default::default()));
    let matrix = MatRef::from_column_major_slice(columns, rows, cols);
    let by_columns = MatMut::from_column_major_slice_mut(vectors, rows, cols);
    let values = DiagMut::from_slice_mut(values);
    svd(matrix, values, Some(by_columns), None, Par::Seq, memory, Default::default()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(size: [usize; 2], rank: usize, element: impl Fn(usize, usize) -> f64) -> Vec<Vec<f64>> {
        let mut found = Vec::new();
        Svd::default().left(size, rank, element, |_, vector| found.push(vector.to_vec()));
        found
    }

    fn dot(x: &[f64], y: &[f64]) -> f64 {
        x.iter().zip(y).map(|(x, y)| x * y).sum()
    }

    fn are_orthonormal(vectors: &[Vec<f64>], what: &str) {
        for (k, u) in vectors.iter().enumerate() {
            for (l, v) in vectors.iter().enumerate() {
                assert!((dot(u, v) - f64::from(k == l)).abs() < 1e-12, "{what}: {k}, {l}");
            }
        }
    }

    #[test]
    fn vectors_are_orthonormal_and_singular() {
        for (n, [rows, cols]) in [[5, 3], [7, 7], [40, 17], [1, 1], [3, 0], [600, 9]].into_iter().enumerate() {
            let a =
                |i: usize, j: usize| ((1 + n + 3 * i * i + 7 * j * i + j) as f64).sin() * 10.0_f64.powi(j as i32 % 5);
            let vectors = left([rows, cols], cols, a);
            assert_eq!(vectors.len(), cols);
            are_orthonormal(&vectors, &format!("{rows}×{cols}"));
            let (mut last, mut most) = (f64::INFINITY, 0.0_f64);
            for (k, u) in vectors.iter().enumerate() {
                // A·Aᵀ·u = σ²·u, with decreasing σ.
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
    fn missing_singular_vectors_are_completed() {
        are_orthonormal(&left([3, 2], 2, |_, _| 0.0), "zeros");
        for size in [1e-200, 3.0, 1e200] {
            let found = left([3, 2], 2, |i, _| if i == 0 { size } else { 0.0 });
            assert!((found[0][0].abs() - 1.0).abs() < 1e-15);
            are_orthonormal(&found, "one dimension");
        }
        for wrong in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let found = left([2, 2], 2, |i, j| if i == j { wrong } else { 1.0 });
            assert!(found.len() == 2 && found.concat().iter().all(|x| x.is_nan()));
        }
    }
}
