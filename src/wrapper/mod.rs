//! What holds other transformations: chains, masks, partitions, and everything that decides when to run what is inside.

mod apply_if_finite;
mod boxed;
mod chain;
mod inject_hyperparams;
mod lookahead;
mod masked;
mod multi_steps;
mod partition;
mod whole_tree;

pub use boxed::{Boxed, BoxedState, DynTransformation, ErasedState, boxed};
pub use chain::{NamedChain, NamedState, chain, named_chain};
pub use inject_hyperparams::{
    Argument, Arguments, Hyperparams, InjectHyperparams, InjectHyperparamsState, inject_hyperparams,
};
pub use masked::{Masked, MaskedState, masked};
pub(crate) use whole_tree::whole_tree_stage;
pub use whole_tree::{WholeTreeStage, WholeTreeTransformation, whole_tree};

/// Says that a struct's state is its fields of these names.
macro_rules! state_fields {
    ($S:ident<$($G:ident: $B:path),*> { $($field:ident),* }) => {
        impl<$($G: $B),*> $crate::state::State for $S<$($G),*> {
            fn walk<'a>(&'a self, walk: &mut $crate::state::StateWalk<'a, '_>) {
                $(walk.child(stringify!($field), &self.$field);)*
            }
            fn walk_mut<'a>(&'a mut self, walk: &mut $crate::state::StateWalkMut<'a, '_>) {
                $(walk.child(stringify!($field), &mut self.$field);)*
            }
        }
    };
}
pub(crate) use state_fields;
