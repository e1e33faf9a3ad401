//! The transformations that chains are made of, a file each.

mod add_decayed_weights;
mod scale;
mod scale_by_adam;
mod scale_by_factored_rms;
mod scale_by_lbfgs;
mod scale_by_learning_rate;

pub use add_decayed_weights::{AddDecayedWeights, add_decayed_weights};
pub use scale::{Scale, scale};
pub use scale_by_adam::{AdamScalars, ScaleByAdam, scale_by_adam};
pub use scale_by_factored_rms::{ScaleByFactoredRms, ScaleByFactoredRmsState, scale_by_factored_rms};
pub use scale_by_lbfgs::{ScaleByLbfgs, ScaleByLbfgsState, scale_by_lbfgs};
pub use scale_by_learning_rate::{ScaleByLearningRate, scale_by_learning_rate};
