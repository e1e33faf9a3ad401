use super::row_major::{ROW_MAJOR_CHUNK, RowMajorChunks, leaves, read};
use crate::error::{Error, Result};
use crate::numeric::sums::sum_tile;
use crate::tree::{LeafRef, Structure, Tree};

/// Returns the inner product of two trees, all leaves together as one vector, in `f64`.
///
/// # Errors
///
/// Fails if the trees differ in structure. They may be of different float types.
///
/// # Example
///
/// ```
/// use gradchain::tree::tree_vdot;
/// assert_eq!(tree_vdot(&(1.0_f32, vec![2.0_f64, 3.0]), &(1.0_f64, vec![-1.0_f32, 2.0]))?, 5.0);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Optax, [`optax.tree.vdot`](https://optax.readthedocs.io/en/latest/api/utilities.html). Differs: `f64`, whatever the
/// type of the leaves.
pub fn tree_vdot<A: Tree + ?Sized, B: Tree + ?Sized>(tree_x: &A, tree_y: &B) -> Result<f64> {
    same_shapes("the two trees of an inner product differ", tree_x, tree_y)?;
    Ok(leaves(tree_x).iter().zip(&leaves(tree_y)).map(|(x, y)| dot(x, y)).sum())
}

/// Refuses trees that differ in more than dtypes.
pub(crate) fn same_shapes<A: Tree + ?Sized, B: Tree + ?Sized>(what: &str, expected: &A, found: &B) -> Result<()> {
    let differences = Structure::of(expected)?.compare(&Structure::of(found)?, |_, _| true);
    if differences.is_empty() { Ok(()) } else { Err(Error::structure(what, differences)) }
}

fn dot(x: &LeafRef<'_>, y: &LeafRef<'_>) -> f64 {
    let (mut sum, mut products, mut others) = (0.0, [0.0; ROW_MAJOR_CHUNK], RowMajorChunks::of(y));
    read(x, |_, x| {
        let products = &mut products[..x.len()];
        products.iter_mut().zip(x.iter().zip(others.next())).for_each(|(product, (x, y))| *product = x * y);
        sum += sum_tile(products, |product: f64| product);
    });
    sum
}
