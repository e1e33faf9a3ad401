use core::fmt;

use crate::needs::Value;
use crate::needs::{Needs, Nothing};
use crate::recipe::Recipe;

/// The statistic that a [`skip_on_spike`](crate::wrapper::skip_on_spike) compares.
pub trait SpikeStatistic: StatisticProperties + Clone + fmt::Debug + Send + Sync + 'static {
    /// The inputs besides gradients.
    type Needs: Needs;
}

/// The properties of a statistic. Users cannot name this trait.
pub trait StatisticProperties {
    /// True if it follows from a sum of squares over the gradients.
    const OF_GRADIENTS: bool;
    /// Its name in configs.
    const NAME: &'static str;

    /// Returns the construction of the statistic as data.
    fn to_recipe(&self) -> Recipe {
        Recipe::text(Self::NAME)
    }
}

/// The norm of the gradients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfNorm;

impl SpikeStatistic for OfNorm {
    type Needs = Nothing;
}

impl StatisticProperties for OfNorm {
    const OF_GRADIENTS: bool = true;
    const NAME: &'static str = "norm";
}

/// The loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfLoss;

impl SpikeStatistic for OfLoss {
    type Needs = Value;
}

impl StatisticProperties for OfLoss {
    const OF_GRADIENTS: bool = false;
    const NAME: &'static str = "loss";
}
