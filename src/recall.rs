//! What is known of the loss from where it was evaluated.

use crate::state::Moments;

/// What is known of the function at one point.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    /// Of the point; `None` if nothing is known.
    pub(crate) fingerprint: Option<[u64; 2]>,
    pub(crate) value: f64,
    pub(crate) gradient: Moments,
}

/// What is kept of evaluations.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recall {
    /// At the parameters.
    pub(crate) here: Known,
    /// In this step: the evaluation before this one is kept only if it is the best. A line search ends at one of these
    /// two.
    pub(crate) last: Known,
    pub(crate) best: Known,
}
