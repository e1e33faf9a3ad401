//! Scaling by norms and means of leaves or of the whole tree.

mod adaptive_grad_clip;
mod centralize;
mod clip_by_block_norm;
mod clip_by_block_rms;
mod clip_by_global_norm;
mod normalize;
mod normalize_by_update_norm;
mod scale_by_novograd;
mod scale_by_param_block_norm;
mod scale_by_param_block_rms;
mod scale_by_trust_ratio;
mod units;

pub use adaptive_grad_clip::{AdaptiveGradClip, AdaptiveGradClipState, adaptive_grad_clip};
pub use centralize::{Centralize, CentralizeState, centralize};
pub use clip_by_block_norm::{ClipByBlockNorm, clip_by_block_norm};
pub use clip_by_block_rms::{ClipByBlockRms, clip_by_block_rms};
pub use clip_by_global_norm::{ClipByGlobalNorm, clip_by_global_norm};
pub use normalize::{Normalize, normalize};
pub use normalize_by_update_norm::{NormalizeByUpdateNorm, normalize_by_update_norm};
pub use scale_by_novograd::{NovogradRun, ScaleByNovograd, ScaleByNovogradState, scale_by_novograd};
pub use scale_by_param_block_norm::{ScaleByParamBlockNorm, scale_by_param_block_norm};
pub use scale_by_param_block_rms::{ScaleByParamBlockRms, scale_by_param_block_rms};
pub use scale_by_trust_ratio::{ScaleByTrustRatio, scale_by_trust_ratio};
