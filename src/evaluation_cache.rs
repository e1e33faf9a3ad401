//! Cached evaluations of the loss.

use crate::state::Moments;

/// The cached evaluation at one point.
#[derive(Clone, Debug, Default)]
pub(crate) struct CachedEvaluation {
    /// Fingerprint of the point; `None` if empty.
    pub(crate) fingerprint: Option<[u64; 2]>,
    pub(crate) value: f64,
    pub(crate) gradient: Moments,
}

/// The cached evaluations.
#[derive(Clone, Debug, Default)]
pub(crate) struct EvaluationCache {
    /// The evaluation at the parameters.
    pub(crate) here: CachedEvaluation,
    /// The last evaluation of this step, and the best one before. A line search ends at one of the two.
    pub(crate) last: CachedEvaluation,
    pub(crate) best: CachedEvaluation,
}
