//! Which leaves: [`Mask`] says whether a transformation acts on a leaf, [`Labels`] to which group a leaf belongs.
//!
//! Guide: [Masks, labels, freezing](https://docs.rs/gradchain/latest/gradchain/_guide/masks/index.html).
//!
//! Both go by a leaf's path, shape and type, never by its value, and both are types of their own: nothing in this crate
//! decides by callability whether an argument is a mask, a label function or a model. A closure becomes one through
//! [`Mask::by`] or [`Labels::by`].
//!
//! Whatever names leaves must name some: a pattern or an entry that no leaf falls under is an error, not an optimizer
//! that quietly does less than it was told.
//!
//! # Patterns
//!
//! A pattern is compared with a leaf's whole path, the keys joined by `/` (see [`tree`](crate::tree)). The path of a
//! tree that is one bare array is empty.
//!
//! | | stands for |
//! |---|---|
//! | `?` | one character, not `/` |
//! | `*` | any characters, not `/`, or none |
//! | `**` | any keys, or none: `**/b` is `b` and `a/b` and `x/a/b` |
//! | `[ab]`, `[a-z]`, `[!ab]` | one of these characters, none of these |
//! | `{w,b}` | one of these patterns |
//! | `\*` | the character `*` itself |
//!
//! # Subtrees
//!
//! An entry of [`Mask::tree`] or [`Labels::tree`] is no pattern but the path of a leaf or of everything below: `layer1`
//! is `layer1`, `layer1/w` and `layer1/norm/scale`, not `layer10/w`. The empty path is the whole tree.

mod function;
mod labels;
mod mask;
pub(crate) mod pattern;
pub(crate) mod subtree;

pub use labels::Labels;
pub use mask::Mask;
