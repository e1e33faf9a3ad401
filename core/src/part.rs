//! For authors of transformations: a *part* is a value with a name and a form.
//!
//! | form | trait besides [`Part`] | guide |
//! |---|---|---|
//! | [`OneElement`] | [`Rule`]: arithmetic on one element | [own rule][rule] |
//! | [`TwoPass`] | [`TwoPasses`]: accumulate over all elements, decide, emit | [own two-pass part][two-pass] |
//! | [`Whole`] | [`WholeTreeTransformation`]: whole leaves, or all of them | [own whole-tree part][whole-tree] |
//! | [`WithLeafStatistics`] | [`LeafStatistics`]: leaf statistics, then one element | [own whole-tree part][whole-tree] |
//! | [`Around`] | [`Wrapper`]; for elements too [`Arithmetic`] or [`Reducing`] | [own wrapper][wrapper] |
//! | [`Named`] | [`Optimizer`]: a chain under a name | – |
//!
//! To observe updates, write a [`Measure`] of [`monitor`].
//!
//! A part has no loop, no tree, no number type and no threads of its own. It is chained, masked, boxed, saved, resumed
//! and averaged like those of the crate. It is safe code: no part can make the engine access foreign memory.
//!
//! [rule]: https://docs.rs/gradchain/latest/gradchain/_guide/own_rule/index.html
//! [two-pass]: https://docs.rs/gradchain/latest/gradchain/_guide/own_two_pass/index.html
//! [wrapper]: https://docs.rs/gradchain/latest/gradchain/_guide/own_wrapper/index.html
//! [whole-tree]: https://docs.rs/gradchain/latest/gradchain/_guide/own_whole_tree/index.html
//! [`Measure`]: https://docs.rs/gradchain/latest/gradchain/transform/trait.Measure.html
//! [`monitor`]: https://docs.rs/gradchain/latest/gradchain/transform/fn.monitor.html

#[cfg(feature = "program")]
#[cfg_attr(docsrs, doc(cfg(feature = "program")))]
pub use crate::engine::recorded::{Line, RemoteLeaf};
pub use crate::engine::{
    Access, Arithmetic, Around, AroundWithArithmetic, AroundWithReductions, Clock, Decision, Effect, Elements, Holds,
    InitContext, Inner, LeafObserver, LeafStatistics, LeafVisitor, Named, NoArithmetic, OneElement, Optimizer, Outcome,
    OutsideMask, Part, PartState, Passes, Quantization, Reducing, ReducingPasses, Rule, Runs, Scope, Slot, SlotArray,
    StepContext, Steps, Sums, TwoPass, TwoPasses, Whole, WholeLeaf, WholeTree, WholeTreeTransformation, WithArithmetic,
    WithLeafStatistics, WithReductions, Wrapper, WrapperState, differs, own_recipe,
};

/// The imports of most parts: `use gradchain::part::prelude::*;`
pub mod prelude {
    pub(crate) use crate::engine::{InnerRuns, Stage, Transform};
    pub(crate) use crate::state::state_fields;

    pub use super::*;
    pub use crate::element::{DType, Real};
    pub use crate::error::{Error, Result};
    pub use crate::needs::Nothing;
    pub use crate::schedule::{Hyperparam, IntoHyperparam};
    pub use crate::state::{Count, Flag, Moments, PerLeaf, Scalar, State};
}
