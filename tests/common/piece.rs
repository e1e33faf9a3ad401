//! How long the pieces are that the engine cuts leaves into.

/// As `PIECE` in `src/engine/pieces.rs`, which says why.
pub(crate) const PIECE: usize =
    if cfg!(debug_assertions) && option_env!("GRADCHAIN_SHORT_PIECES").is_some() { 4 * 1024 } else { 16 * 1024 };
