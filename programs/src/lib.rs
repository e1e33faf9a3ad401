//! Programs that need more of gradchain than its default features: see `examples` beside this folder.
//!
//! This library is empty.
