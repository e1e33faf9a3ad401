//! The transformations that chains are made of, a file each.

mod add_decayed_weights;
mod add_noise;
mod clip;
mod clip_by_block_rms;
mod clip_by_global_norm;
mod ema;
mod identity;
mod keep_params_nonnegative;
mod linesearch;
mod random;
mod rescale;
mod scale;
mod scale_by_adam;
mod scale_by_backtracking_linesearch;
mod scale_by_factored_rms;
mod scale_by_lbfgs;
mod scale_by_learning_rate;
mod scale_by_lion;
mod scale_by_muon;
mod scale_by_param_block_rms;
mod scale_by_schedule;
mod scale_by_shape;
mod scale_by_trust_ratio;
mod scale_by_zoom_linesearch;
mod set_to_zero;
mod trace;
mod zero_nans;

pub use add_decayed_weights::{AddDecayedWeights, add_decayed_weights};
pub use add_noise::{AddNoise, AddNoiseRun, AddNoiseState, add_noise};
pub use clip::{Clip, clip};
pub use clip_by_block_rms::{ClipByBlockRms, clip_by_block_rms};
pub use clip_by_global_norm::{ClipByGlobalNorm, clip_by_global_norm};
pub use ema::{Ema, EmaScalars, ema};
pub use identity::{Identity, identity};
pub use keep_params_nonnegative::{KeepParamsNonnegative, keep_params_nonnegative};
pub use rescale::RescaleState;
pub use scale::{Scale, scale};
pub use scale_by_adam::{AdamScalars, ScaleByAdam, scale_by_adam};
pub use scale_by_backtracking_linesearch::{
    BacktrackingLinesearchInfo, ScaleByBacktrackingLinesearch, ScaleByBacktrackingLinesearchState,
    scale_by_backtracking_linesearch,
};
pub use scale_by_factored_rms::{ScaleByFactoredRms, ScaleByFactoredRmsState, scale_by_factored_rms};
pub use scale_by_lbfgs::{ScaleByLbfgs, ScaleByLbfgsState, scale_by_lbfgs};
pub use scale_by_learning_rate::{ScaleByLearningRate, scale_by_learning_rate};
pub use scale_by_lion::{LionMode, LionScalars, ScaleByLion, ScaleByLionState, scale_by_lion};
pub use scale_by_muon::{
    DimensionNumbers, NsCoeffs, Preconditioning, ScaleByMuon, ScaleByMuonState, WeightDimensionNumbers, scale_by_muon,
};
pub use scale_by_param_block_rms::{ScaleByParamBlockRms, scale_by_param_block_rms};
pub use scale_by_schedule::{ScaleBySchedule, scale_by_schedule};
pub use scale_by_shape::{ScaleByShape, ScaleByShapeState, scale_by_shape};
pub use scale_by_trust_ratio::{ScaleByTrustRatio, scale_by_trust_ratio};
pub use scale_by_zoom_linesearch::{
    InitialGuess, Interpolation, ScaleByZoomLinesearch, ScaleByZoomLinesearchState, ZoomLinesearchInfo,
    scale_by_zoom_linesearch,
};
pub use set_to_zero::{SetToZero, set_to_zero};
pub use trace::{Trace, trace};
pub use zero_nans::{ZeroNans, ZeroNansState, zero_nans};
