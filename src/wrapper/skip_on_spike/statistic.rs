use core::fmt;

use crate::needs::{Needs, Nothing, Value};
use crate::recipe::Recipe;

/// The statistic that a [`skip_on_spike`](crate::wrapper::skip_on_spike) compares.
pub trait SpikeStatistic: Known + Clone + fmt::Debug + Send + Sync + 'static {
    /// What it must be told.
    type Needs: Needs;
}

/// What is known of a statistic. It has no path outside of this crate.
pub trait Known {
    /// Whether it follows from a sum of squares over the gradients.
    const OF_GRADIENTS: bool;
    /// Its name, as in configs.
    const NAME: &'static str;

    /// How it is made, as data.
    fn to_recipe(&self) -> Recipe {
        Recipe::text(Self::NAME)
    }
}

/// By the norm of the gradients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfNorm;

impl SpikeStatistic for OfNorm {
    type Needs = Nothing;
}

impl Known for OfNorm {
    const OF_GRADIENTS: bool = true;
    const NAME: &'static str = "norm";
}

/// By the loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfLoss;

impl SpikeStatistic for OfLoss {
    type Needs = Value;
}

impl Known for OfLoss {
    const OF_GRADIENTS: bool = false;
    const NAME: &'static str = "loss";
}
