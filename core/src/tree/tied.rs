//! Leaves that share memory, as one parameter.

use core::any::Any;
use core::fmt;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use ndarray::{ArcArray, ArrayD, Dimension, IxDyn};

use super::math::row_major::{RowMajorChunks, rewrite};
use super::sharing::{Sharing, sharing};
use super::{Difference, DynElement, DynTree, LeafMut, LeafRef, LeafSpec, Structure, Tree, TreeMut, Walk, WalkMut};
use crate::element::DType;
use crate::error::{Error, Result};

/// Parameters that show all clones of one `ArcArray` as one leaf: for weights used in several places of a model.
///
/// It is a tree of the parameters' leaves, with only the first clone of each array. Hence a tied array has one state,
/// one update, and one path: that of the first clone. Checkpoints, masks and labels use this path; a mask by the path
/// of a later clone matches nothing, which is an error. [`sum_gradients`](Tied::sum_gradients) sums the gradients.
///
/// While a `Tied` lives, the later clones are empty, so that a step writes to the array in place. Dropping it restores
/// them. Create one for each step, and drop it before the model is called. If it is never dropped
/// ([`core::mem::forget`]), the later leaves stay empty. A clone of the array outside of the parameters is left alone:
/// the first step then copies, as `ArcArray` does.
///
/// Only clones are tied, in one shape: an array and its transpose are not. `Arc`s of trees are not either.
///
/// # Cost
///
/// Five walks over the leaves, and a sort of them by address. No element is copied.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::tree::Tied;
/// use ndarray::{ArcArray1, Array1, array};
///
/// #[derive(Tree)]
/// struct Model { embedding: ArcArray1<f64>, output: ArcArray1<f64> }
///
/// #[derive(Tree)]
/// struct Gradients { embedding: Array1<f64>, output: Array1<f64> }
///
/// let shared = array![1.0, 2.0].into_shared();
/// let mut model = Model { embedding: shared.clone(), output: shared };
///
/// let optimizer = sgd(0.5).momentum(0.9);
/// let mut state = optimizer.init(&Tied::of(&mut model)?)?;
/// assert_eq!(state.structure().paths().collect::<Vec<_>>(), ["embedding"]);
///
/// let gradients = Gradients { embedding: array![1.0, 0.0], output: array![0.0, 3.0] };
/// let mut tied = Tied::of(&mut model)?;
/// let sum = tied.sum_gradients(&gradients)?;
/// optimizer.step(&mut tied, &sum, &mut state)?;
/// drop(tied);
///
/// assert_eq!(model.output, array![0.5, 0.5].into_shared());
/// assert_eq!(model.output.as_ptr(), model.embedding.as_ptr());
/// # Ok::<(), gradchain::Error>(())
/// ```
///
/// # References
///
/// Press and Wolf, [Using the output embedding to improve language models](https://arxiv.org/abs/1608.05859), 2016.
/// PyTorch ties weights by modules that hold one parameter: its optimizers take each tensor once, and backward passes
/// accumulate. Optax has no equivalent.
pub struct Tied<'p, P: TreeMut + ?Sized> {
    params: &'p mut P,
    ties: Arc<Ties>,
}

#[derive(Default)]
struct Ties {
    /// Each array's leaves, in order.
    groups: Vec<Vec<LeafSpec>>,
    /// A path's group; true for the group's first.
    places: HashMap<String, (usize, bool)>,
}

impl<'p, P: TreeMut + ?Sized> Tied<'p, P> {
    /// Finds the leaves that share memory, and ties them. If none do, the result is the plain tree.
    ///
    /// # Errors
    ///
    /// Fails, with nothing changed, if leaves share memory that cannot be tied, since they are not `ArcArray`s, or are
    /// other elements of one array or in another order. All are listed.
    pub fn of(params: &'p mut P) -> Result<Tied<'p, P>> {
        let structure = Structure::of(params)?;
        let (mut ties, mut held) = (Ties::default(), HashSet::new());
        handles(params, &mut |path, _| _ = held.insert(path.to_owned()));
        let held = |path: &String| held.contains(path);
        let (ties_found, refused): (Vec<_>, Vec<_>) =
            sharing(params).into_iter().partition(|it| it.clones && held(&it.path) && held(&it.with));
        if !refused.is_empty() {
            let what = "only clones of an `ArcArray`, in one shape, can be tied; other leaves share memory";
            return Err(Error::structure(what, refused.into_iter().map(Difference::from).collect()));
        }
        let spec = |path: &String| structure.index_of(path).map(|leaf| structure.leaves()[leaf].clone());
        for Sharing { path, with, .. } in ties_found {
            let count = ties.groups.len();
            let group = ties.places.entry(with.clone()).or_insert((count, true)).0;
            if group == count {
                ties.groups.push(spec(&with).into_iter().collect());
            }
            ties.groups[group].extend(spec(&path));
            ties.places.insert(path, (group, false));
        }
        let tied = Tied { params, ties: Arc::new(ties) };
        handles(tied.params, &mut |path, array| {
            if tied.ties.is_later(path) {
                array.release();
            }
        });
        Ok(tied)
    }

    /// Returns the gradients of the tied parameters: the sums over the leaves of each array, in the order of the
    /// leaves.
    ///
    /// All other leaves are unchanged, including [`SparseRows`](super::SparseRows) and missing ones.
    ///
    /// The gradients may be a tree of any type, passed by value or by reference. The summands may be of any float
    /// types; the sum is of the widest, and at least `f32`, and rounded after each addition.
    ///
    /// # Cost
    ///
    /// A new array for each sum.
    ///
    /// # Errors
    ///
    /// Fails if some gradients of an array are present and others missing, or one has another shape: all are listed.
    /// Also fails if one is row-sparse.
    ///
    /// # Example
    ///
    /// ```
    /// use gradchain::tree::{Tied, for_each_leaf};
    /// use ndarray::array;
    ///
    /// let shared = array![1.0_f32].into_shared();
    /// let mut model = (shared.clone(), 0.0_f32, shared.clone(), shared);
    /// let sum = Tied::of(&mut model)?.sum_gradients((array![1.0_f32], 8.0_f32, array![2.0_f64], array![4.0_f32]))?;
    /// let mut seen = Vec::new();
    /// for_each_leaf(&sum, |path, leaf| seen.push((path.to_string(), leaf.dtype(), leaf.to_f64())));
    /// assert_eq!(
    ///     seen,
    ///     [("0".into(), gradchain::DType::F64, vec![7.0]), ("1".into(), gradchain::DType::F32, vec![8.0])]
    /// );
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    pub fn sum_gradients<G: Tree>(&self, gradients: G) -> Result<TiedGradients<G>> {
        let mut given = HashMap::new();
        gradients.walk(&mut Walk::of_rows(&mut String::new(), &mut |path, leaf| {
            if self.ties.places.contains_key(path) {
                given.insert(path.to_owned(), leaf);
            }
        }));
        let (mut sums, mut wrong) = (DynTree::new(), Vec::new());
        for group in &self.ties.groups {
            let leaves: Vec<&LeafRef<'_>> = group.iter().filter_map(|spec| given.get(spec.path())).collect();
            if leaves.is_empty() {
                continue;
            }
            if let Some(rows) = group.iter().find(|spec| given.get(spec.path()).is_some_and(|leaf| leaf.rows.is_some()))
            {
                let expected = "dense, since the leaf is tied";
                return Err(Error::argument("sum_gradients", rows.path(), expected, "a row-sparse one"));
            }
            let before = wrong.len();
            wrong.extend(group.iter().filter_map(|spec| gradient_mismatch(spec, given.get(spec.path()))));
            if wrong.len() > before {
                continue;
            }
            let path = group[0].path();
            if leaves.iter().any(|leaf| leaf.dtype() == DType::F64) {
                sums.insert(path, sum::<f64>(&leaves));
            } else {
                sums.insert(path, sum::<f32>(&leaves));
            }
        }
        drop(given);
        if !wrong.is_empty() {
            return Err(Error::structure("the gradients do not fit the parameters that are tied", wrong));
        }
        Ok(TiedGradients { gradients, sums, ties: self.ties.clone() })
    }
}

/// Returns the defect of a tied leaf's gradient, if any.
fn gradient_mismatch(spec: &LeafSpec, gradient: Option<&LeafRef<'_>>) -> Option<Difference> {
    match gradient {
        None => Some(Difference::Missing { expected: spec.clone() }),
        Some(leaf) if leaf.shape() != spec.shape() => {
            let (path, expected) = (spec.path().into(), spec.shape().into());
            Some(Difference::Shape { path, expected, found: leaf.shape().into() })
        }
        Some(_) => None,
    }
}

fn sum<T: DynElement>(leaves: &[&LeafRef<'_>]) -> ArrayD<T> {
    // Adding to −0 keeps a number's bits.
    let mut sum = ArrayD::from_elem(IxDyn(leaves[0].shape()), T::from_f64(-0.0));
    for leaf in leaves {
        let mut from = RowMajorChunks::of(leaf);
        if let Some(mut to) = LeafMut::from_array(&mut sum) {
            rewrite(&mut to, |_, sum| sum.iter_mut().zip(from.next()).for_each(|(sum, x)| *sum += x));
        }
    }
    sum
}

impl Ties {
    fn is_later(&self, path: &str) -> bool {
        matches!(self.places.get(path), Some((_, false)))
    }
}

impl<P: TreeMut + ?Sized> Tree for Tied<'_, P> {
    fn walk<'a>(&'a self, walk: &mut Walk<'a, '_>) {
        walk.through(&*self.params, &mut |sink, path, below, leaf| {
            if !self.ties.is_later(below) {
                sink(path, leaf);
            }
        });
    }
}

impl<P: TreeMut + ?Sized> TreeMut for Tied<'_, P> {
    fn walk_mut<'a>(&'a mut self, walk: &mut WalkMut<'a, '_>) {
        let ties = &self.ties;
        walk.through(&mut *self.params, &mut |sink, path, below, leaf| {
            if !ties.is_later(below) {
                sink(path, leaf);
            }
        });
    }
}

impl<P: TreeMut + ?Sized> Drop for Tied<'_, P> {
    fn drop(&mut self) {
        let (ties, mut firsts) = (&self.ties, HashMap::new());
        handles(self.params, &mut |path, array| match ties.places.get(path) {
            Some((group, true)) => _ = firsts.insert(*group, array.share()),
            Some((group, false)) => firsts.get(group).into_iter().for_each(|first| array.join(&**first)),
            None => {}
        });
    }
}

impl<P: TreeMut + ?Sized> fmt::Debug for Tied<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tied").field("ties", &self.ties.groups).finish_non_exhaustive()
    }
}

/// The gradients of [`Tied`] parameters, returned by [`sum_gradients`](Tied::sum_gradients) and taken by `step`.
#[must_use = "a gradient does nothing until it is given to a step"]
pub struct TiedGradients<G> {
    gradients: G,
    /// The sums, at each array's first path.
    sums: DynTree,
    ties: Arc<Ties>,
}

impl<G: Tree> Tree for TiedGradients<G> {
    fn walk<'a>(&'a self, walk: &mut Walk<'a, '_>) {
        walk.through(&self.gradients, &mut |sink, path, below, leaf| {
            if !self.ties.is_later(below) {
                sink(path, self.sums.leaf(below).unwrap_or(leaf));
            }
        });
    }
}

impl<G> fmt::Debug for TiedGradients<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TiedGradients").field("sums", &self.sums).finish_non_exhaustive()
    }
}

/// Calls `each` with the arrays that can share elements.
fn handles<P: TreeMut + ?Sized>(params: &mut P, each: &mut dyn FnMut(&str, &mut dyn Handle)) {
    params.walk_mut(&mut WalkMut::of_handles(&mut String::new(), &mut |_, _| {}, each));
}

/// An array that can share elements with clones.
pub(crate) trait Handle {
    /// Returns an `ArcArray<_, IxDyn>`.
    fn share(&self) -> Box<dyn Any>;
    /// Becomes a clone of [`share`](Handle::share)'s result.
    fn join(&mut self, shared: &dyn Any);
    fn release(&mut self);
}

impl<A: Clone + 'static, D: Dimension> Handle for ArcArray<A, D> {
    fn share(&self) -> Box<dyn Any> {
        Box::new(self.clone().into_dyn())
    }

    fn join(&mut self, shared: &dyn Any) {
        let shared = shared.downcast_ref::<ArcArray<A, IxDyn>>().cloned();
        if let Some(shared) = shared.and_then(|shared| shared.into_dimensionality().ok()) {
            *self = shared;
        }
    }

    fn release(&mut self) {
        let Some(element) = self.first().cloned() else { return };
        let mut shape = self.raw_dim();
        shape.slice_mut().fill(0);
        // An array without axes still has one element.
        *self = ArcArray::from_elem(shape, element);
    }
}
