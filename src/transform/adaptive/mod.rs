//! Adaptive optimizers: scaling of each element by its past gradients.

#[cfg(feature = "contrib")]
pub(super) mod scale_by_acprop;
mod scale_by_adadelta;
mod scale_by_adam;
mod scale_by_adam_mini;
mod scale_by_adamax;
mod scale_by_adan;
mod scale_by_ademamix;
mod scale_by_adopt;
mod scale_by_amsgrad;
mod scale_by_belief;
mod scale_by_madgrad;
mod scale_by_radam;
mod scale_by_rms;
mod scale_by_rss;
#[cfg(feature = "contrib")]
pub(super) mod scale_by_simplified_ademamix;
mod scale_by_stable_adam;
mod scale_by_stddev;
mod scale_by_yogi;

pub use scale_by_adadelta::{AdadeltaScalars, ScaleByAdadelta, scale_by_adadelta};
pub use scale_by_adam::{AdamScalars, ScaleByAdam, scale_by_adam};
pub use scale_by_adam_mini::{Block, Blocks, ScaleByAdamMini, ScaleByAdamMiniState, scale_by_adam_mini};
pub use scale_by_adamax::{AdamaxScalars, ScaleByAdamax, scale_by_adamax};
pub use scale_by_adan::{AdanScalars, ScaleByAdan, scale_by_adan};
pub use scale_by_ademamix::{AdemamixScalars, ScaleByAdemamix, scale_by_ademamix};
pub use scale_by_adopt::{AdoptScalars, ScaleByAdopt, StepLimit, scale_by_adopt};
pub use scale_by_amsgrad::{AmsgradScalars, ScaleByAmsgrad, scale_by_amsgrad};
pub use scale_by_belief::{BeliefScalars, ScaleByBelief, scale_by_belief};
pub use scale_by_madgrad::{MadgradScalars, ScaleByMadgrad, scale_by_madgrad};
pub use scale_by_radam::{RadamScalars, ScaleByRadam, scale_by_radam};
pub use scale_by_rms::{RmsScalars, ScaleByRms, scale_by_rms};
pub use scale_by_rss::{ScaleByRss, scale_by_rss};
pub use scale_by_stable_adam::{
    ScaleByStableAdam, ScaleByStableAdamState, StableAdamRun, StableAdamScalars, scale_by_stable_adam,
};
pub use scale_by_stddev::{ScaleByStddev, StddevScalars, scale_by_stddev};
pub use scale_by_yogi::{ScaleByYogi, YogiScalars, scale_by_yogi};
