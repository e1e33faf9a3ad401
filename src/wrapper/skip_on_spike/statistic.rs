use core::fmt;

use crate::needs::{Needs, Nothing, Value};
use crate::recipe::Recipe;

/// What a [`skip_on_spike`](crate::skip_on_spike) goes by.
pub trait SpikeStatistic: Clone + fmt::Debug + Send + Sync + 'static {
    /// What it must be told.
    type Needs: Needs;
    /// Whether it follows from a sum of squares over the gradients.
    #[doc(hidden)]
    const OF_GRADIENTS: bool;
    /// Its name, as in configs.
    #[doc(hidden)]
    const NAME: &'static str;

    /// How it is made, as data.
    #[doc(hidden)]
    fn to_recipe(&self) -> Recipe {
        Recipe::text(Self::NAME)
    }
}

/// By the norm of the gradients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfNorm;

impl SpikeStatistic for OfNorm {
    type Needs = Nothing;
    const OF_GRADIENTS: bool = true;
    const NAME: &'static str = "norm";
}

/// By the loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfLoss;

impl SpikeStatistic for OfLoss {
    type Needs = Value;
    const OF_GRADIENTS: bool = false;
    const NAME: &'static str = "loss";
}
