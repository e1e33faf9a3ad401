//! A tree without a struct: arrays by name.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use ndarray::{ArrayD, ArrayViewD, ArrayViewMutD};

use super::math::row_major::leaves;
use super::{ArrayElement, Layout, LeafRef, Structure, Tree, TreeMut, Walk, WalkMut, tree_assign};
use crate::element::{DType, Element, with_dtype};
use crate::error::Result;

/// Arrays by name, of any float type and dimension, in the order of the names; a [copy](DynTree::of) keeps its order.
///
/// A name may hold `/`: `layers/0/weight` is then the leaf's path.
///
/// # Example
///
/// ```
/// use gradchain::prelude::*;
/// use gradchain::tree::DynTree;
/// use ndarray::array;
///
/// let mut params = DynTree::new();
/// params.insert("w", array![[1.0_f32, 2.0]]);
/// params.insert("b", array![0.5_f64]);
/// let grads = params.clone();
///
/// let optimizer = sgd(0.5);
/// let mut state = optimizer.init(&params)?;
/// optimizer.step(&mut params, &grads, &mut state)?;
/// assert_eq!(params.get::<f32>("w").unwrap(), array![[0.5, 1.0]].into_dyn());
/// assert!(params.get::<f32>("b").is_none(), "it holds f64");
/// # Ok::<(), gradchain::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DynTree {
    leaves: BTreeMap<String, DynLeaf>,
    /// True if leaves are in the order of their places, not names.
    placed: bool,
}

/// An array, and its attributes in a copied tree.
#[derive(Clone, Debug)]
struct DynLeaf {
    array: DynArray,
    /// A copy's layout; otherwise that of the surrounding tree.
    layout: Option<Layout>,
    place: usize,
}

impl DynLeaf {
    fn of(array: DynArray) -> DynLeaf {
        DynLeaf { array, layout: None, place: usize::MAX }
    }
}

/// Compares the arrays. The layout is ignored, as by [`LeafSpec`](super::LeafSpec).
impl PartialEq for DynLeaf {
    fn eq(&self, other: &DynLeaf) -> bool {
        self.array == other.array
    }
}

/// An array of a dtype known at run time.
#[derive(Clone, Debug, PartialEq)]
enum DynArray {
    #[cfg(feature = "half")]
    F16(ArrayD<half::f16>),
    #[cfg(feature = "half")]
    Bf16(ArrayD<half::bf16>),
    F32(ArrayD<f32>),
    F64(ArrayD<f64>),
}

/// The element types that a [`DynTree`] holds.
#[diagnostic::on_unimplemented(
    message = "a `DynTree` holds no arrays of `{Self}`",
    note = "it holds arrays of `f32`, `f64` and, with the feature `half`, `f16` and `bf16`",
    note = "complex numbers are not supported: make their real and imaginary parts two leaves, with \
            `array.view_mut().split_complex()`; see \"Complex numbers\" at \
            https://docs.rs/gradchain/latest/gradchain/_guide/trees/index.html"
)]
pub trait DynElement: Element + ArrayElement + Held {}

/// Conversion of arrays of a type. Sealed: no path outside of this crate.
pub trait Held: Sized {
    #[allow(private_interfaces, reason = "called by this crate only")]
    fn wrap(array: ArrayD<Self>) -> DynArray;
    #[allow(private_interfaces, reason = "called by this crate only")]
    fn view(array: &DynArray) -> Option<ArrayViewD<'_, Self>>;
    #[allow(private_interfaces, reason = "called by this crate only")]
    fn view_mut(array: &mut DynArray) -> Option<ArrayViewMutD<'_, Self>>;
}

macro_rules! dyn_element {
    ($($T:ty: $Variant:ident),*) => {$(
        impl DynElement for $T {}

        #[allow(private_interfaces, reason = "called by this crate only")]
        impl Held for $T {
            fn wrap(array: ArrayD<$T>) -> DynArray {
                DynArray::$Variant(array)
            }
            fn view(array: &DynArray) -> Option<ArrayViewD<'_, $T>> {
                if let DynArray::$Variant(array) = array { Some(array.view()) } else { None }
            }
            fn view_mut(array: &mut DynArray) -> Option<ArrayViewMutD<'_, $T>> {
                if let DynArray::$Variant(array) = array { Some(array.view_mut()) } else { None }
            }
        }
    )*};
}
dyn_element!(f32: F32, f64: F64);
#[cfg(feature = "half")]
dyn_element!(half::f16: F16, half::bf16: Bf16);

impl DynTree {
    /// Returns a tree without leaves.
    pub fn new() -> DynTree {
        DynTree::default()
    }

    /// Copies the leaves of a tree: paths, numbers, types, layouts and order.
    ///
    /// [Buffers](super::Buffer) and constraints are not copied.
    ///
    /// For borrowed trees that cannot be cloned, such as [`SlicesMut`](super::SlicesMut): to keep parameters, to
    /// evaluate with [others](crate::OptState::eval_params_into), to restore them with [`tree_assign`].
    ///
    /// ```
    /// use gradchain::prelude::*;
    /// use gradchain::tree::{DynTree, Slices};
    /// use ndarray::array;
    ///
    /// let lent = Slices::new().with("w", &[1.0_f32, 2.0], &[2])?.with("b", &[0.5_f64], &[])?;
    /// let copy = DynTree::of(&lent)?;
    /// assert_eq!(copy.names().collect::<Vec<_>>(), ["w", "b"]);
    /// assert_eq!(copy.get::<f32>("w").unwrap(), array![1.0, 2.0].into_dyn());
    /// assert!(adam(0.1).init(&copy)?.structure().differences(&lent).is_empty());
    /// # Ok::<(), gradchain::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if two leaves have the same path, or one path leads through another leaf.
    pub fn of<T: Tree + ?Sized>(tree: &T) -> Result<DynTree> {
        let structure = Structure::of(tree)?;
        let leaf = |(place, spec): (usize, &super::LeafSpec)| {
            let array = with_dtype!(spec.dtype(), T => T::wrap(ArrayD::from_elem(spec.shape(), T::from_f64(0.0))));
            (spec.path().to_string(), DynLeaf { array, layout: Some(spec.layout()), place })
        };
        let placed = !structure.paths().is_sorted();
        let mut copy = DynTree { leaves: structure.leaves().iter().enumerate().map(leaf).collect(), placed };
        tree_assign(&mut copy, tree)?;
        Ok(copy)
    }

    /// Inserts an array under a name, replacing a previous one.
    pub fn insert<T: DynElement, D: ndarray::Dimension>(
        &mut self,
        name: impl Into<String>,
        array: ndarray::Array<T, D>,
    ) {
        let array = T::wrap(array.into_dyn());
        match self.leaves.entry(name.into()) {
            Entry::Occupied(mut leaf) => leaf.get_mut().array = array,
            Entry::Vacant(leaf) => _ = leaf.insert(DynLeaf::of(array)),
        }
    }

    /// Removes the array of a name; returns whether it existed.
    pub fn remove(&mut self, name: &str) -> bool {
        self.leaves.remove(name).is_some()
    }

    /// Returns the array of a name, if it exists and its elements are of type `T`.
    pub fn get<T: DynElement>(&self, name: &str) -> Option<ArrayViewD<'_, T>> {
        self.leaves.get(name).and_then(|leaf| T::view(&leaf.array))
    }

    /// Returns the array of a name mutably, if it exists and its elements are of type `T`.
    pub fn get_mut<T: DynElement>(&mut self, name: &str) -> Option<ArrayViewMutD<'_, T>> {
        self.leaves.get_mut(name).and_then(|leaf| T::view_mut(&mut leaf.array))
    }

    pub(super) fn leaf(&self, name: &str) -> Option<LeafRef<'_>> {
        leaves(&self.leaves.get(name)?.array).pop()
    }

    /// Iterates over the names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.shown().into_iter().map(|(name, _)| name.as_str())
    }

    /// Returns the type of the array of a name.
    pub fn dtype(&self, name: &str) -> Option<DType> {
        self.leaves.get(name).map(|leaf| match leaf.array {
            #[cfg(feature = "half")]
            DynArray::F16(_) => DType::F16,
            #[cfg(feature = "half")]
            DynArray::Bf16(_) => DType::Bf16,
            DynArray::F32(_) => DType::F32,
            DynArray::F64(_) => DType::F64,
        })
    }

    /// Returns the number of arrays.
    pub fn len(&self) -> usize {
        self.leaves.len()
    }

    /// Returns whether the tree has no arrays.
    pub fn is_empty(&self) -> bool {
        self.leaves.is_empty()
    }
}

impl Tree for DynArray {
    fn walk<'a>(&'a self, walk: &mut Walk<'a, '_>) {
        match self {
            #[cfg(feature = "half")]
            DynArray::F16(array) => array.walk(walk),
            #[cfg(feature = "half")]
            DynArray::Bf16(array) => array.walk(walk),
            DynArray::F32(array) => array.walk(walk),
            DynArray::F64(array) => array.walk(walk),
        }
    }
}

impl TreeMut for DynArray {
    fn walk_mut<'a>(&'a mut self, walk: &mut WalkMut<'a, '_>) {
        match self {
            #[cfg(feature = "half")]
            DynArray::F16(array) => array.walk_mut(walk),
            #[cfg(feature = "half")]
            DynArray::Bf16(array) => array.walk_mut(walk),
            DynArray::F32(array) => array.walk_mut(walk),
            DynArray::F64(array) => array.walk_mut(walk),
        }
    }
}

impl DynTree {
    fn shown(&self) -> Vec<(&String, &DynLeaf)> {
        let mut leaves: Vec<_> = self.leaves.iter().collect();
        if self.placed {
            leaves.sort_by_key(|(_, leaf)| leaf.place);
        }
        leaves
    }
}

impl Tree for DynLeaf {
    fn walk<'a>(&'a self, walk: &mut Walk<'a, '_>) {
        if let Some(layout) = self.layout {
            walk.layout(layout);
        }
        self.array.walk(walk);
    }
}

impl TreeMut for DynLeaf {
    fn walk_mut<'a>(&'a mut self, walk: &mut WalkMut<'a, '_>) {
        self.array.walk_mut(walk);
    }
}

impl Tree for DynTree {
    fn walk<'a>(&'a self, walk: &mut Walk<'a, '_>) {
        if self.placed {
            self.shown().into_iter().for_each(|(name, leaf)| walk.child(name, leaf));
        } else {
            self.leaves.walk(walk);
        }
    }
}

impl TreeMut for DynTree {
    fn walk_mut<'a>(&'a mut self, walk: &mut WalkMut<'a, '_>) {
        if self.placed {
            let mut leaves: Vec<_> = self.leaves.iter_mut().collect();
            leaves.sort_by_key(|(_, leaf)| leaf.place);
            leaves.into_iter().for_each(|(name, leaf)| walk.child(name, leaf));
        } else {
            self.leaves.walk_mut(walk);
        }
    }
}
