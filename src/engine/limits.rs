//! The sizes of fused chains and of the blocks that their loops go through.

/// The most state arrays that a fused chain may have.
pub(crate) const MOST_SLOTS: usize = 8;
/// The most barriers that a fused chain may have.
pub(crate) const MOST_BARRIERS: usize = 3;

/// Elements of a block.
pub(crate) const BLOCK: usize = 32;
