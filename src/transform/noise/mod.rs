//! Noise, and differentially private gradients.

mod add_noise;
mod differentially_private_aggregate;
mod draws;
mod stochastic_rounding;

pub use add_noise::{AddNoise, AddNoiseState, add_noise};
pub use differentially_private_aggregate::{
    PerExample, PerExampleState, PrivateAggregate, PrivateAggregateState, differentially_private_aggregate,
};
pub use draws::Draws;
pub use stochastic_rounding::{StochasticRounding, stochastic_rounding};
