/// Most state arrays of a fused chain.
pub(crate) const MOST_SLOTS: usize = 8;
/// Most barriers of a fused chain.
pub(crate) const MOST_BARRIERS: usize = 3;

pub(crate) const BLOCK: usize = 32;
