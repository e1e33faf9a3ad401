//! Some rows of a leaf.

use std::sync::Arc;

use super::{Tree, TreeMut, Walk, WalkMut};

/// The gradient of a leaf of which only some rows have one: an embedding of which a batch looked up a few.
///
/// It stands in a tree of gradients where a leaf would. A step then touches these rows of the parameter and of its
/// state arrays, and no other. What each part makes of them is in the guide, under "Embeddings by rows".
///
/// # Shapes
///
/// For a leaf of shape `[rows, ..]`, `values` has the shape `[indices.len(), ..]`: any tree with one leaf, such as an
/// array or a view of any float type whose conversion to the leaf's arithmetic loses nothing, in any memory order. With
/// more leaves in it, all have these rows. Indices come in any order, and may be none. Where one comes again, its rows
/// are added up, in the order in which they come, in the type that the leaf's arithmetic is done in. The indices are
/// a `Vec`, an array or a slice of `usize`: [`RowIndices`].
///
/// # Errors
///
/// A step fails, and changes nothing, if an index is not less than the number of the leaf's rows, if there is not one
/// index for each row of `values`, if the leaf does not lie row by row in memory (in column-major order, say), or if a
/// part of the transformation needs gradients of whole leaves.
///
/// # As a tree
///
/// Everywhere but as gradients of a step, rows are a tree with the child `values`: norms, scaling and printing see
/// these rows only; where whole leaves are wanted, as in [`init`](crate::GradientTransformation::init) or
/// [`apply_updates`](crate::apply_updates()), the structures differ, which is an error.
///
/// # Cost
///
/// A step sorts the indices, unless they are, and copies the rows into room that the state keeps.
///
/// # Example
///
/// Row 2 comes twice, so that its gradient is 1 + 2. Rows 0 and 1 keep their bits:
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
/// none. Differs: PyTorch adds the rows of an index up in their own type, here 16-bit rows are added in `f32`.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct SparseRows<V, I = Vec<usize>> {
    /// Which rows, in any order.
    pub indices: I,
    /// Their gradients: one row for each index.
    pub values: V,
}

impl<V, I> SparseRows<V, I> {
    /// The rows of these numbers, in any order, and their gradients: one row for each index.
    pub fn new(indices: I, values: V) -> SparseRows<V, I> {
        SparseRows { indices, values }
    }
}

impl<V: Tree, I: RowIndices> Tree for SparseRows<V, I> {
    fn walk<'a>(&'a self, walk: &mut Walk<'a, '_>) {
        walk.rows(self.indices.indices(), &self.values);
    }
}

/// The values, under the name `values`.
impl<V: TreeMut, I: RowIndices> TreeMut for SparseRows<V, I> {
    fn walk_mut<'a>(&'a mut self, walk: &mut WalkMut<'a, '_>) {
        walk.child("values", &mut self.values);
    }
}

/// What says which rows: a `Vec`, an array or a slice of `usize`, behind a reference, a `Box` or an `Arc` too.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not number rows",
    label = "rows are numbered by `usize`: a `Vec`, an array or a slice of it",
    note = "numbers of another type are converted first, where one that is negative can be found: \
            `indices.iter().map(|&i| usize::try_from(i)).collect::<Result<Vec<_>, _>>()?`"
)]
pub trait RowIndices {
    /// The numbers, in the order in which they were given.
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
// Of one type of number, so that the compiler knows of which literals are.
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
