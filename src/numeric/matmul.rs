//! Matrix products with the same bits on every instruction set and with any number of threads.
//!
//! Each element of a product adds up its terms in the order of the inner index, one multiplication and one addition at a
//! time, whatever the blocking: blocks differ in which elements they hold, never in the order of a sum. Cutting the inner
//! index keeps the order too, since the sum so far goes to memory and comes back unrounded. So each instruction set can
//! have the tile that fills its registers.

use super::isa::{Isa, Job, dispatch};
use crate::element::{DType, Real};

/// Inner indices of a block: a panel of each factor that deep fits the first-level cache.
const DEPTH: usize = 256;
/// Rows of a block, about: so many rows of that depth fit the second-level cache.
const ROWS: usize = 96;

/// A matrix to read: element `[i, j]` is at `i·strides[0] + j·strides[1]`.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a, C> {
    pub(crate) data: &'a [C],
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) strides: [usize; 2],
}

impl<'a, C> Matrix<'a, C> {
    /// A matrix in row-major order.
    pub(crate) fn row_major(data: &'a [C], rows: usize, cols: usize) -> Matrix<'a, C> {
        Matrix { data, rows, cols, strides: [cols, 1] }
    }

    /// The same elements, mirrored at the diagonal.
    pub(crate) fn transposed(self) -> Matrix<'a, C> {
        Matrix { data: self.data, rows: self.cols, cols: self.rows, strides: [self.strides[1], self.strides[0]] }
    }
}

/// Room for the factors in the order in which a product reads them; grows to the largest that it was used for.
#[derive(Debug)]
pub(crate) struct MatmulScratch<C> {
    a: Vec<C>,
    b: Vec<C>,
}

impl<C> Default for MatmulScratch<C> {
    fn default() -> Self {
        MatmulScratch { a: Vec::new(), b: Vec::new() }
    }
}

/// `out ← a·b`, in row-major order.
pub(crate) fn matmul<C: Real>(
    isa: Isa,
    scratch: &mut MatmulScratch<C>,
    a: Matrix<'_, C>,
    b: Matrix<'_, C>,
    out: &mut [C],
) {
    product(isa, scratch, a, b, false, out);
}

/// `out ← a·b` where the product is known to be symmetric term by term, as `x·xᵀ` is and the square of a symmetric matrix:
/// half of it is worked out and mirrored.
pub(crate) fn symmetric_matmul<C: Real>(
    isa: Isa,
    scratch: &mut MatmulScratch<C>,
    a: Matrix<'_, C>,
    b: Matrix<'_, C>,
    out: &mut [C],
) {
    product(isa, scratch, a, b, true, out);
    let n = a.rows;
    for i in 1..n {
        for j in 0..i {
            out[i * n + j] = out[j * n + i];
        }
    }
}

fn product<C: Real>(
    isa: Isa,
    scratch: &mut MatmulScratch<C>,
    a: Matrix<'_, C>,
    b: Matrix<'_, C>,
    upper: bool,
    out: &mut [C],
) {
    assert!(a.cols == b.rows && out.len() == a.rows * b.cols, "the matrices do not fit each other");
    // As many sums as there are registers for, less a few for the factors; of the tiles for AVX-512, those that are
    // compiled to its widest registers (with 32 columns the sums end up in memory, one at a time).
    match (isa, C::DTYPE) {
        (Isa::Avx512, DType::F64) => tiled::<C, 8, 16>(isa, scratch, a, b, upper, out),
        (Isa::Avx512, _) => tiled::<C, 12, 16>(isa, scratch, a, b, upper, out),
        (Isa::Avx2, DType::F64) => tiled::<C, 6, 8>(isa, scratch, a, b, upper, out),
        (Isa::Avx2, _) => tiled::<C, 6, 16>(isa, scratch, a, b, upper, out),
        (_, DType::F64) => tiled::<C, 6, 4>(isa, scratch, a, b, upper, out),
        (_, _) => tiled::<C, 6, 8>(isa, scratch, a, b, upper, out),
    }
}

fn tiled<C: Real, const MR: usize, const NR: usize>(
    isa: Isa,
    scratch: &mut MatmulScratch<C>,
    a: Matrix<'_, C>,
    b: Matrix<'_, C>,
    upper: bool,
    out: &mut [C],
) {
    pack::<C, MR>(a, &mut scratch.a);
    pack::<C, NR>(b.transposed(), &mut scratch.b);
    out.fill(C::zero());
    if out.is_empty() {
        return;
    }
    let rows =
        Rows::<C, MR, NR> { a: &scratch.a, b: &scratch.b, first: 0, cols: b.cols, depth: a.cols, upper, isa, out };
    rows.run();
}

/// Copies a matrix into panels of `N` rows, each with its rows side by side; missing rows are zero.
fn pack<C: Real, const N: usize>(x: Matrix<'_, C>, to: &mut Vec<C>) {
    let [down, along] = x.strides;
    to.resize(x.rows.div_ceil(N) * N * x.cols, C::zero());
    for (p, panel) in to.chunks_exact_mut((N * x.cols).max(1)).enumerate() {
        let first = p * N;
        let here = N.min(x.rows - first);
        for (k, column) in panel.chunks_exact_mut(N).enumerate() {
            for (i, to) in column[..here].iter_mut().enumerate() {
                *to = x.data[(first + i) * down + k * along];
            }
            column[here..].fill(C::zero());
        }
    }
}

/// Some rows of a product.
struct Rows<'a, C, const MR: usize, const NR: usize> {
    a: &'a [C],
    b: &'a [C],
    /// The first row; a multiple of `MR`.
    first: usize,
    cols: usize,
    depth: usize,
    /// Only what is on or above the diagonal is needed.
    upper: bool,
    isa: Isa,
    out: &'a mut [C],
}

impl<C: Real, const MR: usize, const NR: usize> Rows<'_, C, MR, NR> {
    fn run(self) {
        const { assert!(ROWS >= MR) };
        let block = ROWS / MR * MR;
        #[cfg(feature = "rayon")]
        let rows = self.out.len() / self.cols;
        #[cfg(feature = "rayon")]
        if rows > block && rayon::current_num_threads() > 1 {
            let half = (rows / 2).next_multiple_of(block);
            let (top, bottom) = self.out.split_at_mut(half * self.cols);
            let (top, bottom) = (Rows { out: top, ..self }, Rows { out: bottom, first: self.first + half, ..self });
            rayon::join(|| top.run(), || bottom.run());
            return;
        }
        for start in (0..self.depth).step_by(DEPTH) {
            for (i, out) in self.out.chunks_mut(block * self.cols).enumerate() {
                let (isa, first) = (self.isa, self.first + i * block);
                let rows = out.len() / self.cols;
                dispatch(
                    isa,
                    Block::<C, MR, NR> {
                        a: self.a,
                        b: self.b,
                        first,
                        rows,
                        cols: self.cols,
                        depth: self.depth,
                        start,
                        upper: self.upper,
                        out,
                    },
                );
            }
        }
    }
}

/// Some rows of a product, and some of the terms of each of their elements.
struct Block<'a, C, const MR: usize, const NR: usize> {
    a: &'a [C],
    b: &'a [C],
    first: usize,
    rows: usize,
    cols: usize,
    depth: usize,
    /// The first inner index.
    start: usize,
    upper: bool,
    out: &'a mut [C],
}

impl<C: Real, const MR: usize, const NR: usize> Job for Block<'_, C, MR, NR> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let depth = DEPTH.min(self.depth - self.start);
        for col in (0..self.cols).step_by(NR) {
            let b = &self.b[col * self.depth + self.start * NR..][..depth * NR];
            for row in (0..self.rows).step_by(MR) {
                let at = self.first + row;
                if self.upper && col + NR <= at {
                    continue;
                }
                let a = &self.a[at * self.depth + self.start * MR..][..depth * MR];
                let (rows, cols) = (MR.min(self.rows - row), NR.min(self.cols - col));
                let out = &mut self.out[row * self.cols + col..];
                if rows == MR && cols == NR {
                    tile::<C, MR, NR>(a, b, out, self.cols);
                } else {
                    // A tile that sticks out is worked out beside the matrix.
                    let mut whole = [[C::zero(); NR]; MR];
                    for (i, line) in whole[..rows].iter_mut().enumerate() {
                        line[..cols].copy_from_slice(&out[i * self.cols..][..cols]);
                    }
                    tile::<C, MR, NR>(a, b, whole.as_flattened_mut(), NR);
                    for (i, line) in whole[..rows].iter().enumerate() {
                        out[i * self.cols..][..cols].copy_from_slice(&line[..cols]);
                    }
                }
            }
        }
    }
}

/// Adds the products of a panel of each factor to a tile. The sums stay in registers: they are a flat array that is
/// indexed only by constants once the loops are unrolled.
#[inline(always)]
fn tile<C: Real, const MR: usize, const NR: usize>(a: &[C], b: &[C], out: &mut [C], stride: usize) {
    let mut sums = [[C::zero(); NR]; MR];
    for (i, line) in sums.iter_mut().enumerate() {
        line.copy_from_slice(&out[i * stride..][..NR]);
    }
    let (a, _) = a.as_chunks::<MR>();
    let (b, _) = b.as_chunks::<NR>();
    for (a, b) in a.iter().zip(b) {
        for i in 0..MR {
            for j in 0..NR {
                sums[i][j] += a[i] * b[j];
            }
        }
    }
    for (i, line) in sums.iter().enumerate() {
        out[i * stride..][..NR].copy_from_slice(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numeric::isa::detected_isa;

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
        // `a` in column-major order, `b` in row-major order.
        let (am, bm) = (Matrix { data: &a, rows: m, cols: k, strides: [1, m] }, Matrix::row_major(&b, k, n));
        let mut outs = Vec::new();
        for isa in [Isa::Baseline, Isa::Avx2, Isa::Avx512] {
            let mut out = vec![C::nan(); m * n];
            matmul(isa.min(detected_isa()), &mut MatmulScratch::default(), am, bm, &mut out);
            outs.push(out.iter().map(|x| x.as_f64().to_bits()).collect::<Vec<_>>());
        }
        assert!(outs.iter().all(|out| *out == outs[0]), "{m} {k} {n}: the same bits");
        for i in 0..m {
            for j in 0..n {
                let naive: f64 = (0..k).map(|l| a[l * m + i].as_f64() * b[l * n + j].as_f64()).sum();
                let ours = f64::from_bits(outs[0][i * n + j]);
                assert!((ours - naive).abs() <= bound * (k as f64 + 1.0), "{m} {k} {n}: {ours} {naive}");
            }
        }
    }

    #[test]
    fn products_agree_with_a_naive_one_and_have_the_same_bits_everywhere() {
        let sizes = [(1, 1, 1), (7, 300, 17), (33, 20, 65), (100, 3, 40), (250, 513, 97), (5, 0, 4), (0, 4, 3)];
        for (m, k, n) in sizes {
            check::<f32>(m, k, n, 1e-7);
            check::<f64>(m, k, n, 1e-16);
        }
    }

    #[test]
    fn a_symmetric_product_has_the_bits_of_a_whole_one() {
        let (m, k) = (131, 70);
        let x = numbers::<f32>(m * k, 3);
        let x = Matrix::row_major(&x, m, k);
        let (mut whole, mut half) = (vec![0.0; m * m], vec![0.0; m * m]);
        matmul(detected_isa(), &mut MatmulScratch::default(), x, x.transposed(), &mut whole);
        symmetric_matmul(detected_isa(), &mut MatmulScratch::default(), x, x.transposed(), &mut half);
        assert_eq!(whole, half);
    }

    #[cfg(feature = "rayon")]
    #[test]
    fn the_number_of_threads_does_not_change_the_bits() {
        let (m, k, n) = (500, 40, 30);
        let (a, b) = (numbers::<f32>(m * k, 1), numbers::<f32>(k * n, 2));
        let run = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let mut out = vec![0.0; m * n];
            let (a, b) = (Matrix::row_major(&a, m, k), Matrix::row_major(&b, k, n));
            pool.install(|| matmul(detected_isa(), &mut MatmulScratch::default(), a, b, &mut out));
            out
        };
        assert_eq!(run(1), run(2));
        assert_eq!(run(1), run(8));
    }
}
