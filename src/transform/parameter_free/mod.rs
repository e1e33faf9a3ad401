//! Learning-rate-free step sizes, from the distance to the initial parameters.

mod anchored;
mod scale_by_cocob;
mod scale_by_distance_over_gradients;
mod scale_by_dog;
#[cfg(feature = "contrib")]
pub(super) mod scale_by_dowg;

pub use scale_by_cocob::{ScaleByCocob, scale_by_cocob};
pub use scale_by_distance_over_gradients::{
    ScaleByDistanceOverGradients, ScaleByDistanceOverGradientsState, scale_by_distance_over_gradients,
};
pub use scale_by_dog::{DogScalars, InitStep, ScaleByDog, ScaleByDogState, scale_by_dog};
