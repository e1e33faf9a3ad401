//! A tree for those who have no struct: names to arrays.

use std::collections::BTreeMap;

use ndarray::{ArrayD, ArrayViewD, ArrayViewMutD};

use super::math::stretch::leaves;
use super::{ArrayElement, LeafRef, Tree, TreeMut, Walk, WalkMut};
use crate::element::{DType, Element};

/// Names to arrays of any float type and dimension, in the order of the names.
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
    leaves: BTreeMap<String, DynArray>,
}

/// An array whose element type is known at run time.
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
    note = "complex numbers are not supported: the real and the imaginary part are two leaves, as `array.view_mut().split_complex()` shows \
            them; see \"Complex numbers\" in `docs/trees.md`"
)]
pub trait DynElement: Element + ArrayElement + Held {}

/// How a tree holds arrays of a type. It has no path outside of this crate.
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
    /// A tree without leaves.
    pub fn new() -> DynTree {
        DynTree::default()
    }

    /// Puts an array under a name; an array that was there before is replaced.
    pub fn insert<T: DynElement, D: ndarray::Dimension>(
        &mut self,
        name: impl Into<String>,
        array: ndarray::Array<T, D>,
    ) {
        self.leaves.insert(name.into(), T::wrap(array.into_dyn()));
    }

    /// Takes away the array of a name; whether there was one.
    pub fn remove(&mut self, name: &str) -> bool {
        self.leaves.remove(name).is_some()
    }

    /// The array of a name, if there is one and its elements are of type `T`.
    pub fn get<T: DynElement>(&self, name: &str) -> Option<ArrayViewD<'_, T>> {
        self.leaves.get(name).and_then(T::view)
    }

    /// The array of a name, if there is one and its elements are of type `T`.
    pub fn get_mut<T: DynElement>(&mut self, name: &str) -> Option<ArrayViewMutD<'_, T>> {
        self.leaves.get_mut(name).and_then(T::view_mut)
    }

    /// The leaf of a name.
    pub(super) fn leaf(&self, name: &str) -> Option<LeafRef<'_>> {
        leaves(self.leaves.get(name)?).pop()
    }

    /// The names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.leaves.keys().map(String::as_str)
    }

    /// The type of the array of a name.
    pub fn dtype(&self, name: &str) -> Option<DType> {
        self.leaves.get(name).map(|array| match array {
            #[cfg(feature = "half")]
            DynArray::F16(_) => DType::F16,
            #[cfg(feature = "half")]
            DynArray::Bf16(_) => DType::Bf16,
            DynArray::F32(_) => DType::F32,
            DynArray::F64(_) => DType::F64,
        })
    }

    /// How many arrays.
    pub fn len(&self) -> usize {
        self.leaves.len()
    }

    /// Whether there is no array.
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

impl Tree for DynTree {
    fn walk<'a>(&'a self, walk: &mut Walk<'a, '_>) {
        self.leaves.walk(walk);
    }
}

impl TreeMut for DynTree {
    fn walk_mut<'a>(&'a mut self, walk: &mut WalkMut<'a, '_>) {
        self.leaves.walk_mut(walk);
    }
}
