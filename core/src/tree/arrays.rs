//! Arrays and numbers as trees.

use core::ptr::NonNull;
use core::slice;

use ndarray::{ArcArray, ArrayBase, CowRepr, Data, DataMut, Dimension, OwnedArcRepr, OwnedRepr, ViewRepr};

use super::tied::Handle;
use super::{LeafMut, LeafRef, Tree, TreeMut, Walk, WalkMut};
use crate::memory::RawSlice;

/// An element type of arrays in a tree.
///
/// Floats make the array a leaf; arrays of the other types listed below have no leaves, and steps never change them.
#[diagnostic::on_unimplemented(
    message = "an array of `{Self}` is not a tree of float leaves",
    note = "leaves are arrays of `f32`, `f64` and, with the feature `half`, `f16` and `bf16`; a tree may also hold \
            arrays of integers, `bool`, `char` and strings",
    note = "complex numbers are not supported: make their real and imaginary parts two leaves, with \
            `array.view_mut().split_complex()`; see \"Complex numbers\" at \
            https://docs.rs/gradchain/latest/gradchain/_guide/trees/index.html"
)]
pub trait ArrayElement: Raw + 'static {}

/// The memory of an array, if it is a leaf. Sealed.
pub trait Raw: Sized {
    fn raw(first: NonNull<Self>, len: usize) -> Option<RawLeaf>;
}

pub(crate) type RawLeaf = RawSlice;

impl<A: ArrayElement, S: Data<Elem = A>, D: Dimension> Tree for ArrayBase<S, D> {
    fn walk<'a>(&'a self, walk: &mut Walk<'a, '_>) {
        if let Some(leaf) = LeafRef::from_array(self) {
            walk.leaf(leaf);
        }
    }
}

/// Storage of a writable array: owned, shared (`ArcArray`), maybe borrowed (`CowArray`), or lent (`ArrayViewMut`).
///
/// [`ndarray`] has no others.
#[diagnostic::on_unimplemented(
    message = "an array with the storage `{Self}` cannot be written",
    note = "views must be mutable (`ArrayViewMut`); derive a struct of read-only views with `#[tree(read_only)]`"
)]
pub trait ArrayData: Shares {}

/// Storage that may share its elements. Sealed.
pub trait Shares: DataMut {
    /// Returns the array as a sharing handle, if it can share.
    #[allow(private_interfaces, reason = "called by this crate only")]
    fn handle<D: Dimension>(_: &mut ArrayBase<Self, D>) -> Option<&mut dyn Handle> {
        None
    }
}

impl<A> ArrayData for OwnedRepr<A> {}
impl<A> ArrayData for ViewRepr<&mut A> {}
impl<A: Clone> ArrayData for CowRepr<'_, A> {}
impl<A: Clone + 'static> ArrayData for OwnedArcRepr<A> {}

impl<A> Shares for OwnedRepr<A> {}
impl<A> Shares for ViewRepr<&mut A> {}
impl<A: Clone> Shares for CowRepr<'_, A> {}
impl<A: Clone + 'static> Shares for OwnedArcRepr<A> {
    #[allow(private_interfaces, reason = "called by this crate only")]
    fn handle<D: Dimension>(array: &mut ArcArray<A, D>) -> Option<&mut dyn Handle> {
        Some(array)
    }
}

impl<A: ArrayElement, S: ArrayData<Elem = A>, D: Dimension> TreeMut for ArrayBase<S, D> {
    fn walk_mut<'a>(&'a mut self, walk: &mut WalkMut<'a, '_>) {
        if walk.asks_for_handles() {
            return S::handle(self).into_iter().for_each(|array| walk.handle(array));
        }
        if let Some(leaf) = LeafMut::from_array(self) {
            walk.leaf(leaf);
        }
    }
}

/// Implements trees for numbers and carried elements; `$raw` locates a leaf's elements.
macro_rules! elements {
    ($($T:ty),* => |$first:ident, $len:ident| $raw:expr) => {$(
        impl ArrayElement for $T {}
        impl Raw for $T {
            fn raw($first: NonNull<$T>, $len: usize) -> Option<RawLeaf> {
                $raw
            }
        }
        impl Tree for $T {
            fn walk<'a>(&'a self, walk: &mut Walk<'a, '_>) {
                if let Some(leaf) = LeafRef::over(slice::from_ref(self), &[], &[]) {
                    walk.leaf(leaf);
                }
            }
            fn walk_slice<'a>(slice: &'a [$T], walk: &mut Walk<'a, '_>) {
                if let Some(leaf) = LeafRef::over(slice, &[slice.len()], &[1]) {
                    walk.leaf(leaf);
                }
            }
        }
        impl TreeMut for $T {
            fn walk_mut<'a>(&'a mut self, walk: &mut WalkMut<'a, '_>) {
                if let Some(leaf) = LeafMut::over(slice::from_mut(self), &[], &[]) {
                    walk.leaf(leaf);
                }
            }
            fn walk_slice_mut<'a>(slice: &'a mut [$T], walk: &mut WalkMut<'a, '_>) {
                let len = slice.len();
                if let Some(leaf) = LeafMut::over(slice, &[len], &[1]) {
                    walk.leaf(leaf);
                }
            }
        }
    )*};
}
elements!(f32, f64 => |first, len| Some(RawSlice::new(first, len)));
#[cfg(feature = "half")]
elements!(half::f16, half::bf16 => |first, len| Some(RawSlice::new(first, len)));
elements!(
    i8, i16, i32, i64, i128, isize, u8, u16, u32, u64, u128, usize, bool, char, String, &'static str => |_first, _len| None
);
