//! Cached evaluations of the loss.

use crate::state::Moments;

/// An evaluation of the loss at a point.
#[derive(Clone, Debug, Default)]
pub struct CachedEvaluation {
    /// Fingerprint of the point; `None` if empty.
    #[doc(hidden)]
    pub fingerprint: Option<[u64; 2]>,
    #[doc(hidden)]
    pub value: f64,
    #[doc(hidden)]
    pub gradient: Moments,
}

/// The evaluations that later steps may use.
#[derive(Clone, Debug, Default)]
pub struct EvaluationCache {
    /// At the parameters.
    #[doc(hidden)]
    pub here: CachedEvaluation,
    /// The step's last evaluation, and the best one before: a line search ends at either.
    #[doc(hidden)]
    pub last: CachedEvaluation,
    #[doc(hidden)]
    pub best: CachedEvaluation,
}
