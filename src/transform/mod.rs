//! The transformations that chains are made of, a file each.

mod adaptive_grad_clip;
mod add_decayed_weights;
mod add_noise;
mod anchored;
mod apply_every;
mod centralize;
mod clip;
mod clip_by_block_norm;
mod clip_by_block_rms;
mod clip_by_global_norm;
mod cube_root;
mod differentially_private_aggregate;
mod ema;
mod hutchinson_estimator_diag_hessian;
mod identity;
mod keep_params_nonnegative;
mod kronecker;
mod linesearch;
mod moment;
mod monitor;
mod normalize;
mod normalize_by_update_norm;
mod orthogonal;
mod project;
mod random;
mod reduce_on_plateau;
mod reduce_variance;
mod rescale;
mod scale;
mod scale_by_acprop;
mod scale_by_adadelta;
mod scale_by_adam;
mod scale_by_adam_mini;
mod scale_by_adamax;
mod scale_by_adan;
mod scale_by_ademamix;
mod scale_by_adopt;
mod scale_by_amsgrad;
mod scale_by_backtracking_linesearch;
mod scale_by_belief;
mod scale_by_cocob;
mod scale_by_distance_over_gradients;
mod scale_by_dog;
mod scale_by_dowg;
mod scale_by_factored_rms;
mod scale_by_galore;
mod scale_by_lbfgs;
mod scale_by_learning_rate;
mod scale_by_lion;
mod scale_by_madgrad;
mod scale_by_muon;
mod scale_by_novograd;
mod scale_by_optimistic_gradient;
mod scale_by_param_block_norm;
mod scale_by_param_block_rms;
mod scale_by_polyak;
mod scale_by_radam;
mod scale_by_rms;
mod scale_by_rprop;
mod scale_by_rss;
mod scale_by_schedule;
mod scale_by_shampoo;
mod scale_by_shape;
mod scale_by_sign;
mod scale_by_simplified_ademamix;
mod scale_by_sm3;
mod scale_by_soap;
mod scale_by_sophia;
mod scale_by_stable_adam;
mod scale_by_stddev;
mod scale_by_trust_ratio;
mod scale_by_yogi;
mod scale_by_zoom_linesearch;
mod set_to_zero;
mod symmetric;
mod trace;
mod units;
mod zero_nans;

pub use adaptive_grad_clip::{AdaptiveGradClip, AdaptiveGradClipState, adaptive_grad_clip};
pub use add_decayed_weights::{AddDecayedWeights, add_decayed_weights};
pub use add_noise::{AddNoise, AddNoiseRun, AddNoiseState, add_noise};
pub use apply_every::{ApplyEvery, ApplyEveryScalars, apply_every};
pub use centralize::{Centralize, CentralizeState, centralize};
pub use clip::{Clip, clip};
pub use clip_by_block_norm::{ClipByBlockNorm, clip_by_block_norm};
pub use clip_by_block_rms::{ClipByBlockRms, clip_by_block_rms};
pub use clip_by_global_norm::{ClipByGlobalNorm, clip_by_global_norm};
pub use differentially_private_aggregate::{
    PerExample, PerExampleState, PrivateAggregate, PrivateAggregateState, differentially_private_aggregate,
};
pub use ema::{Ema, EmaScalars, ema};
pub use hutchinson_estimator_diag_hessian::{
    HutchinsonEstimatorDiagHessian, HutchinsonState, hutchinson_estimator_diag_hessian,
};
pub use identity::{Identity, identity};
pub use keep_params_nonnegative::{KeepParamsNonnegative, keep_params_nonnegative};
pub use monitor::{
    GlobalNorm, Measure, MeasureFn, MeasureWithEma, Measured, Measurements, Monitor, MonitorState, TreeSum, measure_fn,
    measure_with_ema, measurements, monitor, snapshot,
};
pub use normalize::{Normalize, normalize};
pub use normalize_by_update_norm::{NormalizeByUpdateNorm, normalize_by_update_norm};
pub use project::project;
pub use reduce_on_plateau::{ReduceOnPlateau, ReduceOnPlateauState, reduce_on_plateau};
pub use reduce_variance::{ReduceVariance, reduce_variance};
pub use rescale::RescaleState;
pub use scale::{Scale, scale};
pub use scale_by_acprop::{AcpropScalars, ScaleByAcprop, scale_by_acprop};
pub use scale_by_adadelta::{AdadeltaScalars, ScaleByAdadelta, scale_by_adadelta};
pub use scale_by_adam::{AdamScalars, ScaleByAdam, scale_by_adam};
pub use scale_by_adam_mini::{Block, Blocks, ScaleByAdamMini, ScaleByAdamMiniState, scale_by_adam_mini};
pub use scale_by_adamax::{AdamaxScalars, ScaleByAdamax, scale_by_adamax};
pub use scale_by_adan::{AdanScalars, ScaleByAdan, scale_by_adan};
pub use scale_by_ademamix::{AdemamixScalars, ScaleByAdemamix, scale_by_ademamix};
pub use scale_by_adopt::{AdoptScalars, ScaleByAdopt, StepLimit, scale_by_adopt};
pub use scale_by_amsgrad::{AmsgradScalars, ScaleByAmsgrad, scale_by_amsgrad};
pub use scale_by_backtracking_linesearch::{
    BacktrackingLinesearchInfo, ScaleByBacktrackingLinesearch, ScaleByBacktrackingLinesearchState,
    scale_by_backtracking_linesearch,
};
pub use scale_by_belief::{BeliefScalars, ScaleByBelief, scale_by_belief};
pub use scale_by_cocob::{ScaleByCocob, scale_by_cocob};
pub use scale_by_distance_over_gradients::{
    ScaleByDistanceOverGradients, ScaleByDistanceOverGradientsState, scale_by_distance_over_gradients,
};
pub use scale_by_dog::{DogScalars, InitStep, ScaleByDog, ScaleByDogState, scale_by_dog};
pub use scale_by_dowg::{ScaleByDowg, ScaleByDowgState, scale_by_dowg};
pub use scale_by_factored_rms::{ScaleByFactoredRms, ScaleByFactoredRmsState, scale_by_factored_rms};
pub use scale_by_galore::{ScaleByGalore, ScaleByGaloreState, scale_by_galore};
pub use scale_by_lbfgs::{ScaleByLbfgs, ScaleByLbfgsState, scale_by_lbfgs};
pub use scale_by_learning_rate::{ScaleByLearningRate, scale_by_learning_rate};
pub use scale_by_lion::{LionMode, LionScalars, ScaleByLion, ScaleByLionState, scale_by_lion};
pub use scale_by_madgrad::{MadgradScalars, ScaleByMadgrad, scale_by_madgrad};
pub use scale_by_muon::{
    DimensionNumbers, NsCoeffs, Preconditioning, ScaleByMuon, ScaleByMuonState, WeightDimensionNumbers, scale_by_muon,
};
pub use scale_by_novograd::{NovogradKernel, NovogradRun, ScaleByNovograd, ScaleByNovogradState, scale_by_novograd};
pub use scale_by_optimistic_gradient::{OptimisticScalars, ScaleByOptimisticGradient, scale_by_optimistic_gradient};
pub use scale_by_param_block_norm::{ScaleByParamBlockNorm, scale_by_param_block_norm};
pub use scale_by_param_block_rms::{ScaleByParamBlockRms, scale_by_param_block_rms};
pub use scale_by_polyak::{PolyakScalars, PolyakVariant, ScaleByPolyak, scale_by_polyak};
pub use scale_by_radam::{RadamScalars, ScaleByRadam, scale_by_radam};
pub use scale_by_rms::{RmsScalars, ScaleByRms, scale_by_rms};
pub use scale_by_rprop::{RpropScalars, ScaleByRprop, scale_by_rprop};
pub use scale_by_rss::{ScaleByRss, scale_by_rss};
pub use scale_by_schedule::{ScaleBySchedule, scale_by_schedule};
pub use scale_by_shampoo::{ScaleByShampoo, ScaleByShampooState, scale_by_shampoo};
pub use scale_by_shape::{ScaleByShape, ScaleByShapeState, scale_by_shape};
pub use scale_by_sign::{ScaleBySign, scale_by_sign};
pub use scale_by_simplified_ademamix::{
    ScaleBySimplifiedAdemamix, SimplifiedAdemamixScalars, scale_by_simplified_ademamix,
};
pub use scale_by_sm3::{ScaleBySm3, ScaleBySm3State, scale_by_sm3};
pub use scale_by_soap::{ScaleBySoap, ScaleBySoapState, scale_by_soap};
pub use scale_by_sophia::{ScaleBySophia, ScaleBySophiaState, SophiaRun, scale_by_sophia};
pub use scale_by_stable_adam::{ScaleByStableAdam, ScaleByStableAdamState, StableAdamRun, scale_by_stable_adam};
pub use scale_by_stddev::{ScaleByStddev, StddevScalars, scale_by_stddev};
pub use scale_by_trust_ratio::{ScaleByTrustRatio, scale_by_trust_ratio};
pub use scale_by_yogi::{ScaleByYogi, YogiScalars, scale_by_yogi};
pub use scale_by_zoom_linesearch::{
    InitialGuess, Interpolation, ScaleByZoomLinesearch, ScaleByZoomLinesearchState, ZoomLinesearchInfo,
    scale_by_zoom_linesearch,
};
pub use set_to_zero::{SetToZero, set_to_zero};
pub use trace::{Trace, trace};
pub use zero_nans::{ZeroNans, ZeroNansState, zero_nans};
