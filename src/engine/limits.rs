/// The maximum number of state arrays of a fused chain.
pub(crate) const MOST_SLOTS: usize = 8;
/// The maximum number of barriers of a fused chain.
pub(crate) const MOST_BARRIERS: usize = 3;

pub(crate) const BLOCK: usize = 32;
