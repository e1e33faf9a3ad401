//! Matrix products by ndarray's `matrixmultiply`, bitwise identical for any number of threads.
//!
//! Its order of summation depends on the CPU: results are bitwise identical only on CPUs of the same SIMD level. Blocks
//! depend on the product's shape alone: threads determine where a block is computed, never its values.

use ndarray::linalg::general_mat_mul;
use ndarray::{ArrayView2, ArrayViewMut2, Axis, s};

use super::split::{half, join};
use crate::element::Real;

/// Rows of a block. Each block rereads the other factor, a tenth of the time at this size.
const ROWS: usize = 256;
/// Columns of a block: only products with few rows are split across them.
const COLS: usize = 1024;

/// Views row-major data as a matrix.
pub fn matrix<C>(data: &[C], rows: usize, cols: usize) -> ArrayView2<'_, C> {
    ArrayView2::from_shape((rows, cols), data).expect("as many elements as the shape says")
}

/// Computes `out ← a·b`, in row-major order.
pub fn matmul<C: Real>(a: ArrayView2<'_, C>, b: ArrayView2<'_, C>, out: &mut [C]) {
    product(a, b, false, out);
}

/// As [`matmul`], for symmetric products such as `x·xᵀ` or the square of a symmetric matrix.
///
/// Computes blocks on one side of the diagonal, and mirrors them.
pub fn symmetric_matmul<C: Real>(a: ArrayView2<'_, C>, b: ArrayView2<'_, C>, out: &mut [C]) {
    let n = a.nrows();
    product(a, b, true, out);
    for i in 1..n {
        for j in 0..i {
            out[i * n + j] = out[j * n + i];
        }
    }
}

fn product<C: Real>(a: ArrayView2<'_, C>, b: ArrayView2<'_, C>, upper: bool, out: &mut [C]) {
    let out = ArrayViewMut2::from_shape((a.nrows(), b.ncols()), out).expect("as many elements as the product has");
    blocks(a, b, if upper { Some(0) } else { None }, out);
}

/// Computes the product, halved down to blocks. A symmetric one omits the part below the diagonal; `diagonal` is its
/// column in the first row.
fn blocks<C: Real>(a: ArrayView2<'_, C>, b: ArrayView2<'_, C>, diagonal: Option<usize>, mut out: ArrayViewMut2<'_, C>) {
    let (rows, cols) = out.dim();
    if let Some(half) = half(rows, ROWS) {
        let ((above, below), (first, second)) = (a.split_at(Axis(0), half), out.split_at(Axis(0), half));
        let later = diagonal.map(|diagonal| diagonal + half);
        join(|| blocks(above, b, diagonal, first), || blocks(below, b, later, second));
    } else if let Some(first) = diagonal {
        blocks(a, b.slice_move(s![.., first..]), None, out.slice_mut(s![.., first..]));
    } else if let Some(half) = half(cols, COLS) {
        let ((left, right), (first, second)) = (b.split_at(Axis(1), half), out.split_at(Axis(1), half));
        join(|| blocks(a, left, None, first), || blocks(a, right, None, second));
    } else {
        general_mat_mul(C::one(), &a, &b, C::zero(), &mut out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers<C: Real>(n: usize, seed: u64) -> Vec<C> {
        let mut x = seed;
        let next = |_| {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            C::of((x >> 33) as f64 / f64::from(1_u32 << 31) - 0.5)
        };
        (0..n).map(next).collect()
    }

    fn check<C: Real>(m: usize, k: usize, n: usize, bound: f64) {
        let (a, b) = (numbers::<C>(m * k, 1), numbers::<C>(k * n, 2));
        // `a` is column-major, `b` row-major.
        let mut out = vec![C::nan(); m * n];
        matmul(matrix(&a, k, m).reversed_axes(), matrix(&b, k, n), &mut out);
        for i in 0..m {
            for j in 0..n {
                let naive: f64 = (0..k).map(|l| a[l * m + i].as_f64() * b[l * n + j].as_f64()).sum();
                let ours = out[i * n + j].as_f64();
                assert!((ours - naive).abs() <= bound * (k as f64 + 1.0), "{m} {k} {n}: {ours} {naive}");
            }
        }
    }

    #[test]
    fn products_agree_with_a_naive_one() {
        let sizes = [(1, 1, 1), (7, 300, 17), (33, 20, 65), (100, 3, 40), (600, 51, 97), (5, 9, 2100), (5, 0, 4)];
        for (m, k, n) in sizes.into_iter().chain([(0, 4, 3), (3, 4, 0)]) {
            check::<f32>(m, k, n, 1e-7);
            check::<f64>(m, k, n, 1e-16);
        }
    }

    #[test]
    fn a_symmetric_product_is_symmetric_and_near_a_whole_one() {
        for (m, k) in [(1, 3), (131, 70), (700, 31)] {
            let x = numbers::<f32>(m * k, 3);
            let x = matrix(&x, m, k);
            let (mut whole, mut half) = (vec![0.0; m * m], vec![f32::NAN; m * m]);
            matmul(x, x.reversed_axes(), &mut whole);
            symmetric_matmul(x, x.reversed_axes(), &mut half);
            for (at, (whole, half_there)) in whole.iter().zip(&half).enumerate() {
                assert!((whole - half_there).abs() < 1e-5, "{m}: {at}: {whole} {half_there}");
                assert_eq!(*half_there, half[at % m * m + at / m], "{m}: {at}");
            }
        }
    }

    #[cfg(feature = "rayon")]
    #[test]
    fn the_number_of_threads_does_not_change_the_bits() {
        for (m, k, n) in [(1100, 300, 130), (20, 300, 3100)] {
            let (a, b) = (numbers::<f32>(m * k, 1), numbers::<f32>(k * n, 2));
            let run = |threads| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                let (mut out, mut square) = (vec![0.0; m * n], vec![0.0; m * m]);
                let (a, b) = (matrix(&a, m, k), matrix(&b, k, n));
                pool.install(|| {
                    matmul(a, b, &mut out);
                    symmetric_matmul(a, a.reversed_axes(), &mut square);
                });
                (out, square)
            };
            assert_eq!(run(1), run(2));
            assert_eq!(run(1), run(8));
        }
    }
}
