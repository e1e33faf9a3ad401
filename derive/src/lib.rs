//! The derive macros of gradchain: `Tree` and `State`. Use them through `gradchain`, which re-exports both.

// The crates `syn` and `quote` would be a fifth of the compile time of a program that uses gradchain.
use proc_macro::TokenStream;

use crate::input::Input;
use crate::tokens::{Error, Result};

mod attributes;
mod input;
mod shape;
mod state;
mod tokens;
mod tree;

/// Makes a struct or an enum a tree: implements `Tree` and `TreeMut`.
///
/// Every field is a child, in the order of declaration, so every field must be a tree or skipped.
///
/// | field | path |
/// |---|---|
/// | `weight` of a struct | `weight` |
/// | the first of a tuple struct | `0` |
/// | `weight` of the variant `Dense` | `Dense/weight` |
/// | the first of the variant `Dense` | `Dense/0` |
///
/// # Attributes
///
/// * `#[tree(skip)]` on a field or a variant: it has no leaves. A skipped field may be of any type.
/// * `#[tree(buffer)]` on a field: it is a [buffer](https://docs.rs/gradchain/latest/gradchain/tree/trait.Buffer.html),
///   such as a running mean or a counter: no step changes it, checkpoints store it, and `average_params` averages it.
/// * `#[tree(rename = "w")]` on a field or a variant: the name in paths. It must be unique and not empty, without
///   `/` and `\`.
/// * `#[tree(constraint = positive())]` on a field: the constraint that `Constraints::of` finds for the leaves below
///   it, an expression for any value that implements `Constraint`.
/// * `#[tree(read_only)]` on the type: implements `Tree` alone, as structs of shared views need.
///
/// # Generics
///
/// The type of a generic field must be a tree for the whole to be one. A type parameter that occurs in skipped fields
/// alone is unconstrained.
///
/// # Example
///
/// ```text
/// #[derive(Tree)]
/// struct Dense {
///     #[tree(rename = "w")]
///     weight: Array2<f32>,
///     bias: Array1<f32>,
///     #[tree(skip)]
///     initializer: fn(usize) -> f32,
/// }
///
/// #[derive(Tree)]
/// enum Layer {
///     Dense(Dense),
///     Norm { scale: Array1<f32> },
///     Relu,
/// }
///
/// // Vec<Layer> has the leaves 0/Dense/0/w, 0/Dense/0/bias, 1/Norm/scale, ...
/// ```
#[proc_macro_derive(Tree, attributes(tree))]
pub fn derive_tree(input: TokenStream) -> TokenStream {
    expand(tree::expand, input)
}

/// Makes a struct of typed fields a state: implements `State`.
///
/// Every field is shown under its name (or number, in a tuple struct), in the order of declaration, so every field must
/// be one of the kinds or a state. `#[state(skip)]` excludes a field that is recomputed from the configuration.
///
/// An enum is refused: the fields of a state may not depend on its values.
///
/// # Example
///
/// ```text
/// #[derive(State, Clone, Debug)]
/// struct AdamState {
///     count: Count,
///     mu: Moments,
///     nu: Moments,
///     #[state(skip)]
///     active: Vec<bool>,
/// }
///
/// // Its fields are count, mu, nu; within a chain 0.count, 0.mu, 0.nu.
/// ```
#[proc_macro_derive(State, attributes(state))]
pub fn derive_state(input: TokenStream) -> TokenStream {
    expand(state::expand, input)
}

fn expand(expand: fn(&Input) -> Result<TokenStream>, input: TokenStream) -> TokenStream {
    expand(&Input::read(input)).unwrap_or_else(Error::into_compile_error)
}
