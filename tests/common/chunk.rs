//! The engine's chunk length.

/// `CHUNK` in `core/src/engine/chunks.rs`.
pub(crate) const CHUNK: usize = if cfg!(debug_assertions)
    && matches!(option_env!("GRADCHAIN_SHORT_CHUNKS"), Some(asked) if matches!(asked.as_bytes(), b"1"))
{
    4 * 1024
} else {
    16 * 1024
};
