//! Wrappers: chains, masks, partitions, and transformations that decide when an inner one runs.
//!
//! Guide: [Wrappers](https://docs.rs/gradchain/latest/gradchain/_guide/wrappers/index.html).

mod apply_if_finite;
mod cautious;
mod conditionally;
mod freeze;
#[cfg(feature = "contrib")]
mod mechanize;
mod params_average;
mod params_ema;
mod params_swa;
mod quantized;
mod schedule_free;
mod skip_on_spike;

pub use gradchain_core::wrappers::{
    AdversarialGradient, AdversarialGradientState, Allow, Boxed, BoxedState, DynNamed, DynTransformation,
    DynamicLossScale, DynamicLossScaleState, EveryK, Flatten, FlattenState, Freezable, FreezableMemory, FreezableState,
    Graft, GraftState, Hyperparams, InjectHyperparams, InjectHyperparamsMemory, InjectHyperparamsState, IntoGroup,
    Lookahead, LookaheadMemory, LookaheadState, LossScale, Masked, MaskedState, Master, MasterState, MultiSteps,
    MultiStepsMemory, MultiStepsState, Named, NamedChain, NamedState, NoSkip, OpaqueSam, Partition, PartitionState,
    Sam, SamState, SkipAbsent, SkipAbsentMemory, SkipAbsentState, SkipLargeUpdates, SkipNotFinite, SkipUpdate, allow,
    boxed, chain, dynamic_loss_scale, flatten, freezable, graft, inject_hyperparams, injected_hyperparams, lookahead,
    masked, master, multi_steps, named_chain, narrow, partition, sam, skip_absent, skip_large_updates, skip_not_finite,
};

#[cfg(feature = "collective")]
#[cfg_attr(docsrs, doc(cfg(feature = "collective")))]
pub use gradchain_core::wrappers::{Sharded, ShardedState, sharded};

pub use crate::part::WholeTreeTransformation;
pub use apply_if_finite::{ApplyIfFinite, ApplyIfFiniteMemory, ApplyIfFiniteState, apply_if_finite};
pub use cautious::{Cautious, CautiousMemory, CautiousState, cautious};
pub use conditionally::{
    Condition, Conditionally, ConditionallyMask, ConditionallyMemory, ConditionallyState, ConditionallyTransform,
    StepGe, StepIf, StepLt, StepMod, ValueIf, ValueLt, conditionally_mask, conditionally_transform, step_ge, step_if,
    step_lt, step_mod, value_if, value_lt,
};
pub use freeze::{freeze, selective_transform};
#[cfg(feature = "contrib")]
#[cfg_attr(docsrs, doc(cfg(feature = "contrib")))]
pub use mechanize::{Mechanize, MechanizeMemory, MechanizeState, mechanize};
pub use params_average::{ParamsAverageMemory, ParamsAverageState};
pub use params_ema::{ParamsEma, params_ema};
pub use params_swa::{ParamsSwa, params_swa};
pub use quantized::{Quantized, QuantizedState, quantized};
pub use schedule_free::{Interpolate, ScheduleFree, ScheduleFreeState, schedule_free};
pub use skip_on_spike::{
    OfLoss, OfNorm, SkipOnSpike, SkipOnSpikeMemory, SkipOnSpikeState, SpikeStatistic, skip_on_spike,
};

pub use crate::arguments::{Argument, Arguments};
