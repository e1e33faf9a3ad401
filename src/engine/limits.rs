/// Most state arrays of a fused chain.
pub(crate) const MAX_SLOTS: usize = 8;
/// Most barriers of a fused chain.
pub(crate) const MAX_BARRIERS: usize = 3;

pub(crate) const BLOCK: usize = 32;
