//! Wrappers: chains, masks, partitions, and transformations that decide when an inner one runs.
//!
//! Guide: [Wrappers](https://docs.rs/gradchain/latest/gradchain/_guide/wrappers/index.html).

mod allow;
mod apply_if_finite;
mod boxed;
mod cautious;
mod chain;
mod conditionally;
mod dynamic_loss_scale;
mod flatten;
mod freezable;
mod freeze;
mod graft;
mod inject_hyperparams;
mod lookahead;
mod masked;
mod master;
mod mechanize;
mod multi_steps;
mod optional;
mod params_average;
mod params_ema;
mod params_swa;
mod partition;
mod quantized;
mod sam;
mod schedule_free;
mod sharded;
mod skip_absent;
mod skip_on_spike;

pub use crate::engine::WholeTreeTransformation;
pub use allow::{Allow, allow};
pub use apply_if_finite::{ApplyIfFinite, ApplyIfFiniteMemory, ApplyIfFiniteState, apply_if_finite};
pub use boxed::{Boxed, BoxedState, DynNamed, DynTransformation, Named, boxed, narrow};
pub use cautious::{Cautious, CautiousMemory, CautiousState, cautious};
pub use chain::{NamedChain, NamedState, chain, named_chain};
pub use conditionally::{
    Condition, Conditionally, ConditionallyMask, ConditionallyMemory, ConditionallyState, ConditionallyTransform,
    StepGe, StepIf, StepLt, StepMod, ValueIf, ValueLt, conditionally_mask, conditionally_transform, step_ge, step_if,
    step_lt, step_mod, value_if, value_lt,
};
pub use dynamic_loss_scale::{DynamicLossScale, DynamicLossScaleState, LossScale, dynamic_loss_scale};
pub use flatten::{Flatten, FlattenState, flatten};
pub use freezable::{Freezable, FreezableMemory, FreezableState, freezable};
pub use freeze::{freeze, selective_transform};
pub use graft::{Graft, GraftState, graft};
pub use inject_hyperparams::{
    Hyperparams, InjectHyperparams, InjectHyperparamsMemory, InjectHyperparamsState, inject_hyperparams,
    injected_hyperparams,
};
pub use lookahead::{Lookahead, LookaheadMemory, LookaheadState, lookahead};
pub use masked::{Masked, MaskedState, masked};
pub use master::{Master, MasterState, master};
pub use mechanize::{Mechanize, MechanizeMemory, MechanizeState, mechanize};
pub use multi_steps::{
    EveryK, MultiSteps, MultiStepsMemory, MultiStepsState, NoSkip, SkipLargeUpdates, SkipNotFinite, SkipUpdate,
    multi_steps, skip_large_updates, skip_not_finite,
};
pub use params_average::{ParamsAverageMemory, ParamsAverageState};
pub use params_ema::{ParamsEma, params_ema};
pub use params_swa::{ParamsSwa, params_swa};
pub use partition::{IntoGroup, Partition, PartitionState, partition};
pub use quantized::{Quantized, QuantizedState, quantized};
pub use sam::{AdversarialGradient, AdversarialGradientState, OpaqueSam, Sam, SamState, sam};
pub use schedule_free::{Interpolate, ScheduleFree, ScheduleFreeState, schedule_free};
pub use sharded::{Sharded, ShardedState, sharded};
pub use skip_absent::{SkipAbsent, SkipAbsentMemory, SkipAbsentState, skip_absent};
pub use skip_on_spike::{
    OfLoss, OfNorm, SkipOnSpike, SkipOnSpikeMemory, SkipOnSpikeState, SpikeStatistic, skip_on_spike,
};

pub use crate::arguments::{Argument, Arguments};
