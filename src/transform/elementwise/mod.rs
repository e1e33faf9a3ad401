//! Element-wise operations: products, sums, clipping, moving averages.

mod add_decayed_weights;
mod apply_every;
mod clip;
mod ema;
mod identity;
mod kahan_summation;
mod reduce_variance;
mod scale;
mod scale_by_learning_rate;
mod scale_by_optimistic_gradient;
mod scale_by_schedule;
mod set_to_zero;
mod trace;
mod zero_nans;

pub use add_decayed_weights::{AddDecayedWeights, add_decayed_weights};
pub use apply_every::{ApplyEvery, ApplyEveryScalars, apply_every};
pub use clip::{Clip, clip};
pub use ema::{Ema, EmaScalars, ema};
pub use identity::{Identity, identity};
pub use kahan_summation::{KahanSummation, kahan_summation};
pub use reduce_variance::{ReduceVariance, reduce_variance};
pub use scale::{Scale, scale};
pub use scale_by_learning_rate::{ScaleByLearningRate, scale_by_learning_rate};
pub use scale_by_optimistic_gradient::{OptimisticScalars, ScaleByOptimisticGradient, scale_by_optimistic_gradient};
pub use scale_by_schedule::{ScaleBySchedule, scale_by_schedule};
pub use set_to_zero::{SetToZero, set_to_zero};
pub use trace::{Trace, trace};
pub use zero_nans::{ZeroNans, ZeroNansState, zero_nans};
