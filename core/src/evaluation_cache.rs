//! Cached evaluations of the loss.

use crate::state::Moments;

#[derive(Clone, Debug, Default)]
pub struct CachedEvaluation {
    /// Fingerprint of the point; `None` if empty.
    pub(crate) fingerprint: Option<[u64; 2]>,
    pub(crate) value: f64,
    pub(crate) gradient: Moments,
}

#[derive(Clone, Debug, Default)]
pub struct EvaluationCache {
    /// At the parameters.
    pub(crate) here: CachedEvaluation,
    /// The step's last evaluation, and the best one before: a line search ends at either.
    pub(crate) last: CachedEvaluation,
    pub(crate) best: CachedEvaluation,
}
