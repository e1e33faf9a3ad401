//! For authors of transformations: a *part* is a value with a name that says which form it has.
//!
//! | form | what you implement besides [`Part`] | guide |
//! |---|---|---|
//! | [`OneElement`] | [`Rule`]: arithmetic on one element; [`RuleWithMemory`] for more than a count of steps | [own
//! rule][rule] |
//! | [`TwoPass`] | [`TwoPasses`]: take in all elements, decide, give out | [own two-pass part][two-pass] |
//! | [`Around`] | [`Wrapper`]: hold another transformation; [`Arithmetic`] or [`Weighing`] to do something to elements
//! too | [own wrapper][wrapper] |
//! | [`Whole`] | [`WholeTreeTransformation`]: whole leaves, or all of them | [own whole-tree part][whole-tree] |
//! | [`AfterALook`] | [`LooksFirst`]: look at whole leaves, and then change each element | [own look][look] |
//! | [`LooksOn`] | [`Onlooker`]: look at the updates, and change nothing | [own onlooker][onlooker] |
//! | [`Named`] | [`Optimizer`]: a chain under a name | – |
//!
//! A part has no loop, no tree, no number type and no threads of its own. It is chained, masked, boxed, saved, resumed
//! and averaged like those of the crate, and is safe code: no part can make the engine read or write memory that is not
//! its own.
//!
//! [rule]: https://docs.rs/gradchain/latest/gradchain/_guide/own_rule/index.html
//! [two-pass]: https://docs.rs/gradchain/latest/gradchain/_guide/own_two_pass/index.html
//! [wrapper]: https://docs.rs/gradchain/latest/gradchain/_guide/own_wrapper/index.html
//! [whole-tree]: https://docs.rs/gradchain/latest/gradchain/_guide/own_whole_tree/index.html
//! [look]: https://docs.rs/gradchain/latest/gradchain/_guide/own_look/index.html
//! [onlooker]: https://docs.rs/gradchain/latest/gradchain/_guide/own_onlooker/index.html

pub use crate::engine::{
    Access, AfterALook, Arithmetic, Around, AroundWithArithmetic, AroundWithSums, Clock, Codes, Decision, Effect,
    Elsewhere, Holds, InitContext, Inner, LeafLooker, LeafVisitor, Line, LooksFirst, LooksOn, Named, NoArithmetic,
    OneElement, OneElementWithMemory, Onlooker, Optimizer, Outcome, Part, PartState, RemoteLeaf, Rule, RuleWithMemory,
    Slot, SlotArray, StepContext, Steps, Stretch, Sums, TwoPass, TwoPasses, Weighing, Whole, WholeLeaf, WholeTree,
    WholeTreeTransformation, WithArithmetic, WithSums, Wrapper, WrapperState, differs, own_recipe,
};

/// All that most parts are made of: `use gradchain::part::prelude::*;`
pub mod prelude {
    pub(crate) use crate::engine::{Stage, Transform};
    pub(crate) use crate::state::state_fields;

    pub use super::*;
    pub use crate::element::{DType, Real};
    pub use crate::error::{Error, Result};
    pub use crate::needs::Nothing;
    pub use crate::schedule::{Hyperparam, IntoHyperparam};
    pub use crate::state::{Count, Flag, Moments, PerLeaf, Scalar, State};
}
