//! The orthogonal factor of a QR decomposition.

use faer::dyn_stack::StackReq;
use faer::linalg::householder::{
    apply_block_householder_sequence_on_the_left_in_place_scratch as apply_scratch,
    apply_block_householder_sequence_on_the_left_in_place_with_conj as apply,
};
use faer::linalg::qr::no_pivoting::factor::{qr_in_place, qr_in_place_scratch, recommended_block_size};
use faer::{Conj, MatMut, Par};

use super::{Scratch, zeros};

/// Scratch space; grows to the largest matrix.
#[derive(Debug, Default)]
pub struct Orthogonal {
    factors: Vec<f64>,
    scratch: Scratch,
}

/// Computes `Q` of `S = QR`, with a positive diagonal of `R`; overwrites `s`.
///
/// `Q` is orthogonal up to rounding errors for any `S`, even with dependent columns.
pub fn orthogonalize(s: &mut [f64], n: usize, q: &mut [f64], scratch: &mut Orthogonal) {
    if n == 0 {
        return;
    }
    q.fill(0.0);
    q.iter_mut().step_by(n + 1).for_each(|x| *x = 1.0);
    let block = recommended_block_size::<f64>(n, n);
    let sizes =
        [qr_in_place_scratch::<f64>(n, n, block, Par::Seq, Default::default()), apply_scratch::<f64>(n, block, n)];
    let mut factors = MatMut::from_column_major_slice_mut(zeros(&mut scratch.factors, block * n), block, n);
    let memory = scratch.scratch.of(StackReq::any_of(&sizes));
    let mut reflected = MatMut::from_column_major_slice_mut(s, n, n);
    qr_in_place(reflected.as_mut(), factors.as_mut(), Par::Seq, memory, Default::default());
    let by_columns = MatMut::from_column_major_slice_mut(q, n, n);
    apply(reflected.as_ref(), factors.as_ref(), Conj::No, by_columns, Par::Seq, memory);
    for (column, diagonal) in q.chunks_exact_mut(n).zip(s.iter().step_by(n + 1)) {
        if *diagonal < 0.0 {
            column.iter_mut().for_each(|x| *x = -*x);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dot(x: &[f64], y: &[f64]) -> f64 {
        x.iter().zip(y).map(|(x, y)| x * y).sum()
    }

    #[test]
    fn q_is_orthogonal_and_r_is_triangular_with_a_positive_diagonal() {
        for n in [1, 2, 5, 17, 40] {
            let mut s: Vec<f64> =
                (0..n * n).map(|i| ((i * i + 3 * i + 1) as f64).sin() * 10.0_f64.powi(i as i32 % 7)).collect();
            let (old, mut q) = (s.clone(), vec![0.0; n * n]);
            orthogonalize(&mut s, n, &mut q, &mut Orthogonal::default());
            for i in 0..n {
                for j in 0..n {
                    let (qi, qj, sj) = (&q[i * n..][..n], &q[j * n..][..n], &old[j * n..][..n]);
                    assert!((dot(qi, qj) - f64::from(i == j)).abs() < 1e-13, "{n}: {i}, {j}");
                    let r = dot(qi, sj);
                    assert!(
                        if i == j { r > 0.0 } else { i < j || r.abs() < 1e-13 * dot(sj, sj).sqrt() },
                        "{n}: {i}, {j}"
                    );
                }
            }
        }
    }

    #[test]
    fn columns_that_depend_on_each_other_are_completed() {
        let mut q = [0.0; 9];
        let mut s = [1.0, 1.0, 0.0, 2.0, 2.0, 0.0, 0.0, 0.0, 0.0];
        orthogonalize(&mut s, 3, &mut q, &mut Orthogonal::default());
        for i in 0..3 {
            for j in 0..3 {
                assert!((dot(&q[3 * i..][..3], &q[3 * j..][..3]) - f64::from(i == j)).abs() < 1e-14);
            }
        }
        assert!((q[0] - 0.5_f64.sqrt()).abs() < 1e-15);
    }
}
