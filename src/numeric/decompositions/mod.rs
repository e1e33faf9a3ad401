//! Decompositions of matrices, in `f64` and with the same bits on any number of threads: by hand, or by the crate faer
//! with the feature of this name. Matrices have their columns one after another.

#[cfg(feature = "faer")]
mod by_faer;
#[cfg(not(feature = "faer"))]
mod by_hand;
mod svd;
mod symmetric;

#[cfg(feature = "faer")]
pub(crate) use by_faer::{Room, orthogonalize};
#[cfg(feature = "faer")]
use by_faer::{eigen, rotate};
#[cfg(not(feature = "faer"))]
pub(crate) use by_hand::{Room, orthogonalize};
#[cfg(not(feature = "faer"))]
use by_hand::{eigen, rotate};
pub(crate) use svd::Svd;
pub(crate) use symmetric::Symmetric;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numeric::isa::current_isa;

    fn dot(x: &[f64], y: &[f64]) -> f64 {
        x.iter().zip(y).map(|(x, y)| x * y).sum()
    }

    #[test]
    fn q_is_orthogonal_and_r_is_triangular_with_a_positive_diagonal() {
        for n in [1, 2, 5, 17, 40] {
            let mut s: Vec<f64> =
                (0..n * n).map(|i| ((i * i + 3 * i + 1) as f64).sin() * 10.0_f64.powi(i as i32 % 7)).collect();
            let (old, mut q) = (s.clone(), vec![0.0; n * n]);
            orthogonalize(current_isa(), &mut s, n, &mut q, &mut Room::default());
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
        orthogonalize(current_isa(), &mut s, 3, &mut q, &mut Room::default());
        for i in 0..3 {
            for j in 0..3 {
                assert!((dot(&q[3 * i..][..3], &q[3 * j..][..3]) - f64::from(i == j)).abs() < 1e-14);
            }
        }
        assert!((q[0] - 0.5_f64.sqrt()).abs() < 1e-15);
    }
}
