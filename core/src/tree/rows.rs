//! Row-sparse gradients.

use std::sync::Arc;

use super::{Tree, TreeMut, Walk, WalkMut};

/// The gradient of a leaf for some of its rows only: an embedding after the lookups of a batch.
///
/// It stands in a tree of gradients in the place of a leaf. A step then touches these rows of the parameter and of its
/// state arrays, and no others. The guide, under "Embeddings by rows", says how each part treats them.
///
/// # Shapes
///
/// For a leaf of shape `[rows, ..]`, `values` has the shape `[indices.len(), ..]`. It is any tree with one leaf, such
/// as an array or a view of any float type that converts to the leaf's compute type without loss, in any memory order.
/// If that tree has several leaves, all of them have these rows. Indices come in any order, and may be none. Rows of a
/// repeated index are summed, in the order in which they come, in the leaf's compute type. The indices are a `Vec`, an
/// array or a slice of `usize`: [`RowIndices`].
///
/// # Errors
///
/// A step fails, and changes nothing, if an index is not less than the number of the leaf's rows, if the indices are
/// not as many as the rows of `values`, if the leaf is not row-major in memory, or if a part of the transformation
/// needs gradients of whole leaves.
///
/// # As a tree
///
/// Everywhere but as gradients of a step, rows are a tree with the child `values`: norms, scaling and printing see
/// these rows only. Functions on whole leaves, such as [`init`](crate::GradientTransformation::init) or
/// [`apply_updates`](crate::apply_updates()), fail because the structures differ.
///
/// # Cost
///
/// A step sorts the indices, unless they are sorted, and copies the rows into scratch space of the state.
///
/// # Example
///
/// Row 2 comes twice, so that its gradient is 1 + 2. Rows 0 and 1 stay bitwise identical:
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::tree::SparseRows;
/// use ndarray::{Array1, Array2, array};
///
/// #[derive(Tree)]
/// struct Model { embedding: Array2<f32>, bias: Array1<f32> }
///
/// #[derive(Tree)]
/// struct Gradients { embedding: SparseRows<Array2<f32>>, bias: Array1<f32> }
///
/// let mut model = Model { embedding: array![[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]], bias: array![0.0] };
/// let gradients = Gradients {
///     embedding: SparseRows::new(vec![2, 2], array![[1.0, 0.0], [2.0, 4.0]]),
///     bias: array![1.0],
/// };
/// let optimizer = sgd(0.5).momentum(0.9);
/// let mut state = optimizer.init(&model)?;
/// optimizer.step(&mut model, &gradients, &mut state)?;
/// assert_eq!(model.embedding, array![[1.0, 1.0], [2.0, 2.0], [1.5, 1.0]]);
/// assert_eq!(model.bias, array![-0.5]);
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// PyTorch's gradients of `torch.nn.Embedding(sparse=True)`, after `coalesce`; TensorFlow's `IndexedSlices`. Optax has
/// no equivalent. Differs: PyTorch sums the rows of an index in their own type, here 16-bit rows are summed in `f32`.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct SparseRows<V, I = Vec<usize>> {
    /// The row indices, in any order.
    pub indices: I,
    /// Their gradients: one row for each index.
    pub values: V,
}

impl<V, I> SparseRows<V, I> {
    /// Returns the gradients of the rows with these indices, in any order: one row for each index.
    pub fn new(indices: I, values: V) -> SparseRows<V, I> {
        SparseRows { indices, values }
    }
}

impl<V: Tree, I: RowIndices> Tree for SparseRows<V, I> {
    fn walk<'a>(&'a self, walk: &mut Walk<'a, '_>) {
        walk.rows(self.indices.indices(), &self.values);
    }
}

/// Shows the values, under the name `values`.
impl<V: TreeMut, I: RowIndices> TreeMut for SparseRows<V, I> {
    fn walk_mut<'a>(&'a mut self, walk: &mut WalkMut<'a, '_>) {
        walk.child("values", &mut self.values);
    }
}

/// Row indices: a `Vec`, an array or a slice of `usize`, also behind a reference, a `Box` or an `Arc`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a list of row indices",
    label = "row indices are a `Vec`, an array or a slice of `usize`",
    note = "convert other integer types first, which detects negative indices: `indices.iter().map(|&i| \
            usize::try_from(i)).collect::<Result<Vec<_>, _>>()?`"
)]
pub trait RowIndices {
    /// Returns the indices, in the given order.
    fn indices(&self) -> &[usize];
}

macro_rules! indices {
    ($([$($generic:tt)*] $T:ty),* $(,)?) => {$(
        impl<$($generic)*> RowIndices for $T {
            fn indices(&self) -> &[usize] {
                self
            }
        }
    )*};
}
// One integer type, so that literals' types are inferred.
indices!([] [usize], [] Vec<usize>, [const N: usize] [usize; N]);

impl<I: RowIndices + ?Sized> RowIndices for &I {
    fn indices(&self) -> &[usize] {
        (**self).indices()
    }
}

impl<I: RowIndices + ?Sized> RowIndices for Box<I> {
    fn indices(&self) -> &[usize] {
        (**self).indices()
    }
}

impl<I: RowIndices + ?Sized> RowIndices for Arc<I> {
    fn indices(&self) -> &[usize] {
        (**self).indices()
    }
}
