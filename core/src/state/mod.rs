//! States of transformations: fields by kind.
//!
//! Guide: [State](https://docs.rs/gradchain/latest/gradchain/_guide/state/index.html).
//!
//! A state is a struct whose fields each have a *kind*. The kind alone determines the operations on a field:
//!
//! | kind | holds | averaging | arithmetic |
//! |---|---|---|---|
//! | [`Moments`] | float arrays, one for each leaf | mean in `f64`, dtype kept | by the engine |
//! | [`Scalar`] | one `f64` | mean | as `f64` |
//! | [`Count`] | a number of steps or elements | the largest, or refused: [`AverageOptions`] | none: `increment`, `reset` |
//! | [`Flag`] | true or false | any, all, or refused: [`AverageOptions`] | none |
//! | [`RandomKey`] | the key of a random stream | refused by default | none |
//! | [`PerLeaf`] | a count, flag or scalar for each leaf | as its kind | as its kind |
//!
//! A flag or a count has no arithmetic, so no code can average one into a fraction.
//! [`#[derive(State)]`](derive@crate::State) makes a struct of such fields a state; tuples of states are states.

mod average;
#[cfg(feature = "serde")]
pub(crate) mod data;
mod evaluate;
#[cfg(feature = "serde")]
pub(crate) mod exact;
pub(crate) mod items;
mod kinds;
mod layout;
mod levels;
mod moments;
pub(crate) mod moves;
mod proposals;
mod readings;
mod schema;
#[cfg(feature = "tracing")]
mod trace;
pub(crate) mod verb;
mod walk;

pub(crate) use average::mean_of_singles;
pub use average::{AverageOptions, CountPolicy, FlagPolicy, KeyPolicy, average, lerp};
#[cfg(feature = "serde")]
#[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
pub use data::StateData;
pub use evaluate::{EvaluateAs, Evaluation};
#[cfg(feature = "derive")]
pub use gradchain_derive::State;
pub(crate) use items::{Item, ItemMut, ItemName, Owner, Single, assign_item, items, items_mut, restart};
pub use kinds::{Count, Flag, PerLeaf, PerLeafKind, RandomKey, Scalar};
pub(crate) use layout::Layout;
pub(crate) use levels::Levels;
pub use moments::Moments;
pub(crate) use moves::{ItemSpec, Moves, Source, below, no_part};
pub(crate) use moves::{Parts, counts_by_leaf, sources};
pub(crate) use readings::{ArgumentValues, Reader};
pub use readings::{Reading, Readings};
pub use schema::{Kind, Schema, SchemaEntry, SizeReport, same_bits};
pub(crate) use verb::INNER;
pub(crate) use verb::Verb;
pub use walk::{Entry, EntryMut, StateWalk, StateWalkMut};
pub(crate) use walk::{FactKind, SHARES};

/// A struct of typed fields, which it passes to a walk one by one.
///
/// Derive it: `#[derive(State)]` on a struct whose fields are kinds or states; `#[state(skip)]` omits a field that is
/// recomputed from the configuration, such as a resolved mask. If such a field depends on the parameters, implement the
/// trait by hand, and pass it as a [`fact`](StateWalk::fact).
///
/// # Example
///
/// ```
/// use gradchain::state::{Count, Flag, State};
///
/// #[derive(State, Clone, Debug)]
/// struct MyState { seen: Count, found_nan: Flag }
///
/// let mut state = MyState { seen: Count::default(), found_nan: Flag::default() };
/// state.seen.increment();
/// state.found_nan.set(true);
/// assert_eq!(state.seen.get(), 1);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a typed state",
    note = "use the kinds of `gradchain::state` (Moments, Count, Flag, Scalar, RandomKey, PerLeaf) as fields, and \
            `#[derive(State)]` for a struct of them"
)]
pub trait State: Clone + core::fmt::Debug + Send + Sync + 'static {
    /// Passes every field to the walk.
    fn walk<'a>(&'a self, walk: &mut StateWalk<'a, '_>);

    /// Passes every field to the walk for writing: the same fields, in the same order and under the same paths.
    fn walk_mut<'a>(&'a mut self, walk: &mut StateWalkMut<'a, '_>);

    /// Returns the formula of the parameters to evaluate with. Only the memory of a part implements it.
    fn evaluate_as(&self) -> Option<EvaluateAs> {
        None
    }
}

macro_rules! tuples {
    ($($T:ident $i:tt),*) => {
        impl<$($T: State),*> State for ($($T,)*) {
            #[inline(never)]
            fn walk<'a>(&'a self, _walk: &mut StateWalk<'a, '_>) {
                $(_walk.index($i, &self.$i);)*
            }
            #[inline(never)]
            fn walk_mut<'a>(&'a mut self, _walk: &mut StateWalkMut<'a, '_>) {
                $(_walk.index($i, &mut self.$i);)*
            }
        }
    };
}
crate::tuples::up_to_twelve!(tuples);

impl<S: State> State for Vec<S> {
    fn walk<'a>(&'a self, walk: &mut StateWalk<'a, '_>) {
        self.iter().enumerate().for_each(|(i, state)| walk.index(i, state));
    }
    fn walk_mut<'a>(&'a mut self, walk: &mut StateWalkMut<'a, '_>) {
        self.iter_mut().enumerate().for_each(|(i, state)| walk.index(i, state));
    }
}

impl<S: State> State for Option<S> {
    fn walk<'a>(&'a self, walk: &mut StateWalk<'a, '_>) {
        if let Some(state) = self {
            state.walk(walk);
        }
    }
    fn walk_mut<'a>(&'a mut self, walk: &mut StateWalkMut<'a, '_>) {
        if let Some(state) = self {
            state.walk_mut(walk);
        }
    }
}

/// Implements a state by its fields' names. Fields in `facts` are [facts](StateWalk::fact), those in `means` its
/// [meaning](StateWalk::meaning); arrays in `scratch` are scratch buffers, whose memory layout is a
/// fact. `reads name`
/// names a method with further [readings](StateWalk::reading).
#[doc(hidden)]
#[macro_export]
macro_rules! state_fields {
    (
        $S:ident $(<$G:ident: $B:path>)? { $($field:ident),* }
        $(facts { $($fact:ident),* })? $(means { $($means:ident),* })?
            $(scratch { $($scratch:ident),* })? $(reads $reads:ident)?
    ) => {
        impl $(<$G: $B>)? $crate::state::State for $S $(<$G>)? {
            fn walk<'a>(&'a self, _walk: &mut $crate::state::StateWalk<'a, '_>) {
                $($(_walk.fact(stringify!($fact), &self.$fact);)*)?
                $($(_walk.meaning(stringify!($means), &self.$means);)*)?
                $($(_walk.fact(stringify!($scratch), &self.$scratch.layout_hash());)*)?
                $(self.$reads(_walk);)?
                $(_walk.child(stringify!($field), &self.$field);)*
            }
            fn walk_mut<'a>(&'a mut self, _walk: &mut $crate::state::StateWalkMut<'a, '_>) {
                $(_walk.child(stringify!($field), &mut self.$field);)*
            }
        }
    };
}
pub(crate) use state_fields;
