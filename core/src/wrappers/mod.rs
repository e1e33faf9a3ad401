//! Transformations that combine others, and wrappers that [`OptState`](crate::OptState) controls.

mod allow;
mod boxed;
mod chain;
mod dynamic_loss_scale;
mod flatten;
mod freezable;
mod graft;
mod inject_hyperparams;
mod leaf_types;
mod lookahead;
mod masked;
mod master;
mod multi_steps;
mod optional;
mod partition;
mod sam;
#[cfg(feature = "collective")]
mod sharded;
mod skip_absent;

pub use allow::{Allow, allow};
pub use boxed::{Boxed, BoxedState, DynNamed, DynTransformation, Named, boxed, narrow};
pub use chain::{NamedChain, NamedState, chain, named_chain};
pub use dynamic_loss_scale::{DynamicLossScale, DynamicLossScaleState, LossScale, dynamic_loss_scale};
pub use flatten::{Flatten, FlattenState, flatten};
pub use freezable::{Freezable, FreezableMemory, FreezableState, freezable};
pub use graft::{Graft, GraftState, graft};
pub use inject_hyperparams::{
    Hyperparams, InjectHyperparams, InjectHyperparamsMemory, InjectHyperparamsState, inject_hyperparams,
    injected_hyperparams,
};
pub use leaf_types::LeafTypes;
pub use lookahead::{Lookahead, LookaheadMemory, LookaheadState, lookahead};
pub use masked::{Masked, MaskedState, masked};
pub use master::{Master, MasterState, master};
pub use multi_steps::{
    EveryK, MultiSteps, MultiStepsMemory, MultiStepsState, NoSkip, SkipLargeUpdates, SkipNotFinite, SkipUpdate,
    multi_steps, skip_large_updates, skip_not_finite,
};
pub use partition::{IntoGroup, Partition, PartitionState, partition};
pub use sam::{AdversarialGradient, AdversarialGradientState, OpaqueSam, Sam, SamState, sam};
#[cfg(feature = "collective")]
#[cfg_attr(docsrs, doc(cfg(feature = "collective")))]
pub use sharded::{Sharded, ShardedState, sharded};
pub use skip_absent::{SkipAbsent, SkipAbsentMemory, SkipAbsentState, skip_absent};
