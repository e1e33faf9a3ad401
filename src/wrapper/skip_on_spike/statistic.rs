use core::fmt;

use crate::engine::Shape;
use crate::needs::{Needs, Nothing, Value};

/// What a [`skip_on_spike`](crate::skip_on_spike) goes by.
pub trait SpikeStatistic: Clone + fmt::Debug + Send + Sync + 'static {
    /// What it must be told.
    type Needs: Needs;
    /// The sum of squares that it follows from, if it does.
    #[doc(hidden)]
    const SHAPE: Shape;
    /// Its name, as in configs.
    #[doc(hidden)]
    const NAME: &'static str;
}

/// By the norm of the gradients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfNorm;

impl SpikeStatistic for OfNorm {
    type Needs = Nothing;
    const SHAPE: Shape = Shape { barriers: 1, stateful: 0, reads_params: 0, materializes: 0, sums: 1 };
    const NAME: &'static str = "norm";
}

/// By the loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfLoss;

impl SpikeStatistic for OfLoss {
    type Needs = Value;
    const SHAPE: Shape = Shape::elementwise(false, false);
    const NAME: &'static str = "loss";
}
