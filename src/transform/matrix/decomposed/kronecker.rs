//! Matrices between two symmetric factors, one for rows and one for columns: the common part of SOAP and Shampoo.

use core::any::Any;
use core::fmt;
use core::hash::{Hash, Hasher};
use std::hash::DefaultHasher;
use std::sync::Arc;

use ndarray::ArrayView2;

use super::super::WeightDimensionNumbers;
use super::super::scale_by_muon::one_matrix;
use crate::internal::numeric::{Orthogonal, Symmetric, largest_first, matmul, matrix, orthogonalize, symmetric_matmul};
use crate::part::prelude::*;
use crate::tree::LeafSpec;

/// Element `[i, j]` of a matrix is at `rows[i] + cols[j]`.
#[derive(Debug, Hash)]
pub(super) struct MatrixOffsets {
    pub(super) rows: Vec<usize>,
    pub(super) cols: Vec<usize>,
}

impl MatrixOffsets {
    pub(super) fn size(&self) -> [usize; 2] {
        [self.rows.len(), self.cols.len()]
    }

    /// Copies to row-major order.
    pub(super) fn read<C: Real>(&self, from: &[C], to: &mut Vec<C>) {
        to.clear();
        to.extend(self.rows.iter().flat_map(|i| self.cols.iter().map(move |j| from[i + j])));
    }

    /// Copies from row-major order.
    pub(super) fn write<C: Real>(&self, from: &[C], to: &mut [C]) {
        for (i, row) in self.rows.iter().zip(from.chunks_exact(self.cols.len().max(1))) {
            self.cols.iter().zip(row).for_each(|(j, x)| to[i + j] = *x);
        }
    }
}

/// The matrices with a factor for at least one side: one no longer than `most`.
#[derive(Clone, Debug)]
pub(super) struct Matrices {
    of_leaf: Arc<[Option<MatrixOffsets>]>,
    axes: u64,
}

/// Hashes the axes of rows and columns, independently of the memory order of the leaves.
impl Hash for Matrices {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.axes.hash(hasher);
    }
}

impl Matrices {
    pub(super) fn new(
        numbers: &WeightDimensionNumbers,
        most: usize,
        at: &InitContext<'_>,
        what: &str,
    ) -> Result<Matrices> {
        numbers.check(at, what)?;
        let leaves = at.structure().leaves().iter().zip(at.active());
        let of = |(leaf, on): (&LeafSpec, &bool)| if *on { places(numbers, most, leaf, what) } else { Ok(None) };
        let mut hasher = DefaultHasher::new();
        for (leaf, on) in leaves.clone() {
            let in_row_major_order = leaf.standing_for(leaf.dtype(), Some(leaf.shape().into()));
            of((&in_row_major_order, on))?.hash(&mut hasher);
        }
        Ok(Matrices { of_leaf: leaves.map(of).collect::<Result<_>>()?, axes: hasher.finish() })
    }

    pub(super) fn of(&self, leaf: usize) -> Option<&MatrixOffsets> {
        self.of_leaf[leaf].as_ref()
    }
}

fn places(numbers: &WeightDimensionNumbers, most: usize, leaf: &LeafSpec, what: &str) -> Result<Option<MatrixOffsets>> {
    let matrix = one_matrix(numbers, leaf, what)?;
    Ok(matrix
        .map(|[rows, cols]| MatrixOffsets { rows, cols })
        .filter(|places| places.size().iter().any(|n| *n <= most)))
}

/// Allocates zeroed square arrays for all sides of at most `most`.
pub(super) fn square_arrays(
    numbers: &WeightDimensionNumbers,
    most: usize,
    at: &InitContext<'_>,
) -> Result<[Moments; 2]> {
    let of = |side: usize| {
        Moments::with_shapes(
            at.structure(),
            at.active(),
            |leaf| leaf.dtype().compute(),
            |leaf| {
                let n = places(numbers, most, leaf, "").ok().flatten()?.size()[side];
                (n <= most).then(|| vec![n, n])
            },
        )
    };
    Ok([of(0)?, of(1)?])
}

/// Scratch space for both compute types and decompositions; not saved.
#[derive(Default)]
pub(super) struct ScratchByType {
    single: KroneckerScratch<f32>,
    double: KroneckerScratch<f64>,
}

/// A clone starts empty.
impl Clone for ScratchByType {
    fn clone(&self) -> ScratchByType {
        ScratchByType::default()
    }
}

impl fmt::Debug for ScratchByType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScratchByType").finish_non_exhaustive()
    }
}

impl ScratchByType {
    pub(super) fn of<C: Real>(&mut self) -> &mut KroneckerScratch<C> {
        let buffers: &mut dyn Any = match C::DTYPE {
            DType::F64 => &mut self.double,
            _ => &mut self.single,
        };
        let Some(buffers) = buffers.downcast_mut() else { unreachable!("there is room for each compute type") };
        buffers
    }
}

pub(super) struct KroneckerScratch<C> {
    pub(super) gradient: Vec<C>,
    pub(super) mean: Vec<C>,
    temporary: Vec<C>,
    pub(super) eigen: Eigen,
}

impl<C> Default for KroneckerScratch<C> {
    fn default() -> KroneckerScratch<C> {
        KroneckerScratch { gradient: Vec::new(), mean: Vec::new(), temporary: Vec::new(), eigen: Eigen::default() }
    }
}

pub(super) fn square<C>(data: &[C], n: usize) -> ArrayView2<'_, C> {
    matrix(data, n, n)
}

#[derive(Clone, Copy)]
pub(super) enum Of {
    Gradient,
    Mean,
}

impl<C: Real> KroneckerScratch<C> {
    /// Computes `x ← left·x·right`, where absent factors are the identity.
    pub(super) fn multiply(
        &mut self,
        which: Of,
        [rows, cols]: [usize; 2],
        left: Option<ArrayView2<'_, C>>,
        right: Option<ArrayView2<'_, C>>,
    ) {
        let x = match which {
            Of::Gradient => &mut self.gradient,
            Of::Mean => &mut self.mean,
        };
        let out = &mut self.temporary;
        if let Some(left) = left {
            out.resize(rows * cols, C::zero());
            matmul(left, matrix(x, rows, cols), out);
            core::mem::swap(x, out);
        }
        if let Some(right) = right {
            out.resize(rows * cols, C::zero());
            matmul(matrix(x, rows, cols), right, out);
            core::mem::swap(x, out);
        }
    }

    /// Computes `factor ← keep·factor + take·G·Gᵀ` for the rows, `Gᵀ·G` otherwise.
    pub(super) fn accumulate(
        &mut self,
        [rows, cols]: [usize; 2],
        of_rows: bool,
        keep: f64,
        take: f64,
        factor: &mut [C],
    ) {
        let gradient = matrix(&self.gradient, rows, cols);
        let x = if of_rows { gradient } else { gradient.reversed_axes() };
        self.temporary.resize(factor.len(), C::zero());
        symmetric_matmul(x, x.reversed_axes(), &mut self.temporary);
        let [keep, take] = [keep, take].map(C::of);
        factor.iter_mut().zip(&self.temporary).for_each(|(factor, x)| *factor = keep * *factor + take * *x);
    }
}

/// Decompositions of positive semidefinite matrices, in `f64`, bitwise identical on any number of threads.
#[derive(Default)]
pub(super) struct Eigen {
    symmetric: Symmetric,
    matrix: Vec<f64>,
    vectors: Vec<f64>,
    product: Vec<f64>,
    values: Vec<(f64, usize)>,
    orthogonal: Orthogonal,
}

impl Eigen {
    /// Writes the eigenvectors as columns, by decreasing eigenvalue.
    pub(super) fn vectors<C: Real>(&mut self, matrix: &[C], n: usize, vectors: &mut [C]) {
        self.symmetric.decompose(n, |i, j| matrix[i * n + j].as_f64());
        for k in 0..n {
            let column = vectors.iter_mut().skip(k).step_by(n);
            column.zip(self.symmetric.vector(k)).for_each(|(to, x)| *to = C::of(*x));
        }
    }

    /// Improves an older matrix's eigenvectors by one step of orthogonal iteration.
    ///
    /// The columns of `vectors` are sorted by decreasing weight; `order` receives the former column of each.
    pub(super) fn improve<C: Real>(
        &mut self,
        matrix: &[C],
        n: usize,
        vectors: &mut [C],
        mut order: impl FnMut(&[(f64, usize)]),
    ) {
        let wide = |from: &[C], to: &mut Vec<f64>| {
            to.clear();
            to.extend(from.iter().map(|x| x.as_f64()));
        };
        wide(matrix, &mut self.matrix);
        wide(vectors, &mut self.vectors);
        self.product.resize(n * n, 0.0);
        // Transposed, for contiguous columns: `(matrix·vectors)ᵀ`.
        let (mirrored, matrix) = (square(&self.vectors, n).reversed_axes(), square(&self.matrix, n));
        matmul(mirrored, matrix, &mut self.product);
        self.values.clear();
        for (j, column) in self.product.chunks_exact(n.max(1)).enumerate() {
            let along = self.vectors.iter().skip(j).step_by(n).zip(column).map(|(q, s)| q * s);
            self.values.push((along.sum(), j));
        }
        largest_first(&mut self.values);
        order(&self.values);
        // In the new order, into the matrix's free memory.
        for (to, (_, j)) in self.matrix.chunks_exact_mut(n.max(1)).zip(&self.values) {
            to.copy_from_slice(&self.product[j * n..][..n]);
        }
        orthogonalize(&mut self.matrix, n, &mut self.vectors, &mut self.orthogonal);
        for (k, column) in self.vectors.chunks_exact(n.max(1)).enumerate() {
            vectors.iter_mut().skip(k).step_by(n).zip(column).for_each(|(to, x)| *to = C::of(*x));
        }
    }

    /// Computes `root ← (matrix + ridge·1)^power`.
    pub(super) fn power<C: Real>(&mut self, matrix: &[C], n: usize, ridge: f64, power: f64, root: &mut [C]) {
        self.symmetric.decompose(n, |i, j| matrix[i * n + j].as_f64());
        self.vectors.clear();
        self.matrix.clear();
        // Rows are eigenvectors, plain and times a power of the eigenvalues, which rounding may have made negative.
        for k in 0..n {
            let (value, vector) = (self.symmetric.value(k), self.symmetric.vector(k));
            let factor = (if value < 0.0 { ridge } else { value + ridge }).powf(power);
            self.vectors.extend_from_slice(vector);
            self.matrix.extend(vector.iter().map(|x| factor * x));
        }
        self.product.resize(n * n, 0.0);
        let (weighted, plain) = (square(&self.matrix, n).reversed_axes(), square(&self.vectors, n));
        symmetric_matmul(weighted, plain, &mut self.product);
        root.iter_mut().zip(&self.product).for_each(|(root, x)| *root = C::of(*x));
    }
}
