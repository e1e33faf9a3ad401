//! Matrices in a leaf, in its last two axes, and triangles of them.

use super::range::slack;
use crate::Result;
use crate::internal::state::{ConstrainedLeaf, Part};

/// Returns the rows and columns of the last two axes.
pub(super) fn size(leaf: &ConstrainedLeaf<'_>) -> Result<[usize; 2]> {
    match leaf.shape() {
        [.., rows, cols] => Ok([*rows, *cols]),
        shape => Err(leaf.refuse("a matrix, or matrices in the last two axes", format!("the shape {shape:?}"))),
    }
}

/// Returns the rows of square matrices.
pub(super) fn square(leaf: &ConstrainedLeaf<'_>) -> Result<usize> {
    match size(leaf)? {
        [rows, cols] if rows == cols => Ok(rows),
        _ => Err(leaf.refuse("a square matrix in the last two axes", format!("the shape {:?}", leaf.shape()))),
    }
}

/// Declares raw numbers for each matrix's lower triangle, row by row.
pub(super) fn triangles(leaf: &ConstrainedLeaf<'_>) -> Result<Vec<Part>> {
    let n = square(leaf)?;
    let mut shape = leaf.shape()[..leaf.shape().len() - 2].to_vec();
    shape.push(row(n));
    Ok(vec![Part::new("raw", &shape)])
}

/// Returns the start of row `i` of a triangle.
pub(super) fn row(i: usize) -> usize {
    i * (i + 1) / 2
}

/// Reads the triangle of a matrix that is symmetric up to rounding, as the mean of both sides.
///
/// `first` is the index of the matrix's first element in the leaf.
pub(super) fn read_symmetric(
    leaf: &ConstrainedLeaf<'_>,
    first: usize,
    n: usize,
    matrix: &[f64],
    to: &mut [f64],
) -> Result<()> {
    if let Some(i) = matrix.iter().position(|x| !x.is_finite()) {
        return Err(leaf.refuse_element(first + i, "finite", matrix[i]));
    }
    let largest = matrix.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
    for i in 0..n {
        for j in 0..=i {
            let (low, high) = (matrix[i * n + j], matrix[j * n + i]);
            if (low - high).abs() > slack(leaf.dtype(), n) * largest {
                return Err(leaf.refuse_element(first + i * n + j, &format!("{high}, the mirrored element"), low));
            }
            // Halved first, because the sum of two large numbers overflows.
            to[row(i) + j] = if low == high { low } else { low / 2.0 + high / 2.0 };
        }
    }
    Ok(())
}
