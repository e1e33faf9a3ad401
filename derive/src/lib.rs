//! Derive macros of gradchain.
