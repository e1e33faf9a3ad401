//! Selection of leaves: a [`Mask`] holds those that a transformation acts on, [`Labels`] the group of each leaf.
//!
//! Guide: [Masks, labels, freezing](https://docs.rs/gradchain/latest/gradchain/_guide/masks/index.html).
//!
//! Both depend on a leaf's path, shape and dtype, never on its value, and both are types of their own: this crate never
//! tests an argument for callability. A closure becomes one through [`Mask::by`] or [`Labels::by`].
//!
//! A name must match: a pattern or an entry without a leaf is an error, not an optimizer that silently does less than
//! requested.
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
//! | `**` | any keys, or none: `**/b` matches `b` and `a/b` and `x/a/b` |
//! | `[ab]`, `[a-z]`, `[!ab]` | one of these characters, none of these |
//! | `{w,b}` | one of these patterns |
//! | `\*` | the character `*` itself |
//!
//! # Subtrees
//!
//! An entry of [`Mask::tree`] or [`Labels::tree`] is no pattern but the path of a leaf or of everything below: `layer1`
//! covers `layer1`, `layer1/w` and `layer1/norm/scale`, not `layer10/w`. The empty path is the whole tree.

mod function;
mod labels;
mod mask;
pub(crate) mod pattern;
pub(crate) mod subtree;

pub use labels::Labels;
pub use mask::Mask;
