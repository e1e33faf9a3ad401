//! Parameters and gradients as trees of leaves.
//!
//! Guide: [Trees](https://docs.rs/gradchain/latest/gradchain/_guide/trees/index.html).
//!
//! A *tree* is anything that can show its leaves, float arrays, in a fixed order and under stable paths such as
//! `layers/0/weight`. [`Tree`] shows them for reading, which suffices for gradients; [`TreeMut`] for writing, which
//! parameters need. `#[derive(Tree)]` implements both for your own structs and enums. They are implemented for
//!
//! * arrays of [`ndarray`] of any dimension: owned, views, shared (`ArcArray`, `CowArray`), and raw slices
//!   with shapes ([`Slices`], [`SlicesMut`]);
//! * `f32`, `f64` (and with the feature `half` also `f16`, `bf16`): a leaf without axes; `Vec`, boxed slices and arrays
//!   of them: a leaf with one axis;
//! * `Vec`, arrays, tuples, `Option`, `Box`, `Arc`, `BTreeMap<String, _>` of trees, and [`DynTree`], names to arrays;
//! * [`SparseRows`], leaves with gradients for some rows only; [`Tied`], leaves that are one array in several places;
//! * integers, `bool`, `char`, strings and arrays of them: they have no leaves, and steps never change them.
//!
//! A tree may show [buffers](Buffer) too: values that are no leaves but are saved with the parameters.
//!
//! | field | path |
//! |---|---|
//! | struct field `weight` | `weight` |
//! | element 3 of a `Vec`, array or tuple | `3` |
//! | entry `"head"` of a map | `head` |
//! | field `w` of enum variant `Dense` | `Dense/w` |
//! | `Some(x)`, `Box`, `Arc` | nothing: the path of the inner value |
//!
//! Paths nest with `/`. A tree that is one bare array has the single path `""`.

mod arrays;
pub(crate) mod buffers;
mod bytes;
pub(crate) mod constraint;
mod containers;
mod dynamic;
pub(crate) mod leaf;
pub(crate) mod math;
mod pages;
mod rows;
mod sharing;
mod slices;
pub(crate) mod structure;
mod tied;
mod walk;

pub use arrays::{ArrayData, ArrayElement};
pub(crate) use buffers::buffers_of;
pub use buffers::{Buffer, BufferElement};
pub use dynamic::{DynElement, DynTree};
#[cfg(feature = "derive")]
pub use gradchain_derive::Tree;
pub(crate) use leaf::LeafParts;
pub(crate) use leaf::PartOf;
pub use leaf::{LeafMut, LeafRef};
pub use math::{
    BufferPolicy, Norm, apply_updates, average_params, average_params_with, for_each_leaf, incremental_update,
    per_example_global_norm_clip, per_example_layer_norm_clip, periodic_update, tree_add_scaled, tree_assign,
    tree_fill, tree_map, tree_norm, tree_scale, tree_sum, tree_vdot, tree_zeros_like,
};
pub(crate) use math::{SMALL, is_safe, length};
pub(crate) use math::{add_update, bytes_of, mean_of_buffer, row_major, shares, weighted_mean, write_buffers};
pub use pages::huge_pages;
pub use rows::{RowIndices, SparseRows};
pub(crate) use sharing::refuse_shared;
pub use slices::{Slices, SlicesMut};
pub use structure::Structure;
pub use tied::{Tied, TiedGradients};
pub use walk::{Walk, WalkMut};

pub use crate::layout::{BufferSpec, Difference, Layout, LeafSpec};
pub(crate) use crate::layout::{Cursor, dense_strides, is_dense};
pub(crate) use crate::layout::{Run, Strided};

/// A type with float leaves to read, in a fixed order, under stable paths; gradients, for example.
///
/// Derive it: `#[derive(Tree)]` on a struct or enum whose fields are trees. The derive implements [`TreeMut`] as well,
/// except with `#[tree(read_only)]` (for structs of views). See the [module](self) for the available trees and for
/// paths.
///
/// A callable tree, a model that implements `Fn`, is a tree like any other: this crate never calls it.
///
/// # Example: by hand
///
/// ```
/// use gradchain::tree::{Structure, Tree, Walk};
/// use ndarray::Array1;
///
/// struct Model { weight: Array1<f32>, bias: f32, name: String }
///
/// impl Tree for Model {
///     fn walk<'a>(&'a self, walk: &mut Walk<'a, '_>) {
///         walk.child("weight", &self.weight);
///         walk.child("bias", &self.bias);
///     }
/// }
///
/// let model = Model { weight: Array1::zeros(3), bias: 0.0, name: "linear".into() };
/// let structure = Structure::of(&model)?;
/// assert_eq!(structure.leaves()[0].to_string(), "weight: f32 [3]");
/// assert_eq!(structure.leaves()[1].to_string(), "bias: f32 []");
/// # assert_eq!(model.name, "linear");
/// # Ok::<(), gradchain::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a tree of float leaves",
    note = "derive it for a struct of your own with `#[derive(Tree)]`; `#[tree(skip)]` leaves out a field that is not a tree",
    note = "leaves are `f32` and `f64`, with the feature `half` of gradchain also `f16` and `bf16`, and arrays of them from \
            `gradchain::ndarray`; another version of ndarray or half has other types",
    note = "a map of leaves is a `BTreeMap<String, _>`, whose order is fixed, not a `HashMap`",
    note = "the state is not a tree: `step(&mut params, &grads, &mut state)`, `update(&grads, &mut state, &params)`",
    note = "complex numbers are not supported: make their real and imaginary parts two leaves, with \
            `array.view_mut().split_complex()`; see \"Complex numbers\" at \
            https://docs.rs/gradchain/latest/gradchain/_guide/trees/index.html"
)]
pub trait Tree {
    /// Shows every leaf, in a fixed order.
    fn walk<'a>(&'a self, walk: &mut Walk<'a, '_>);

    /// Shows the leaves of a slice of such trees. By default element `i` is a child with key `i`; for number types the
    /// whole slice is one leaf.
    fn walk_slice<'a>(slice: &'a [Self], walk: &mut Walk<'a, '_>)
    where
        Self: Sized,
    {
        walk.elements(slice);
    }
}

/// A [`Tree`] whose leaves can be written: parameters, for example.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a tree whose leaves can be written",
    note = "derive it for a struct of your own with `#[derive(Tree)]`, without `#[tree(read_only)]`; views must be mutable \
            (`ArrayViewMut`), and slices lent by `SlicesMut`",
    note = "`EvalParams` is read-only: train the parameters that `eval_params` was given"
)]
pub trait TreeMut: Tree {
    /// Shows every leaf for writing: the same leaves, in the same order and under the same paths as [`Tree::walk`].
    fn walk_mut<'a>(&'a mut self, walk: &mut WalkMut<'a, '_>);

    /// As [`Tree::walk_slice`].
    fn walk_slice_mut<'a>(slice: &'a mut [Self], walk: &mut WalkMut<'a, '_>)
    where
        Self: Sized,
    {
        walk.elements(slice);
    }
}
