//! The limits of fused chains, and the block size of their loops.

/// The most state arrays of a fused chain.
pub(crate) const MOST_SLOTS: usize = 8;
/// The most barriers of a fused chain.
pub(crate) const MOST_BARRIERS: usize = 3;

/// Elements of a block.
pub(crate) const BLOCK: usize = 32;
