/// The maximum number of state arrays of a fused chain.
pub(crate) const MAX_SLOTS: usize = 8;
/// The maximum number of barriers of a fused chain.
pub(crate) const MAX_BARRIERS: usize = 3;

pub const BLOCK: usize = 32;
