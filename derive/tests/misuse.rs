//! What must not compile, of the whole crate, and what the compiler says then. It is a test of this package, since what
//! is tried is compiled with the features and dependencies of the package that it is a test of: these are the fewest.
//!
//! The messages are those of Rust 1.95; other versions word some of them differently. To record them again:
//! `TRYBUILD=overwrite cargo test --test misuse`. They are checked only, which takes a fraction of building: what the
//! compiler finds when it makes machine code of a generic function is in doc tests, as those of a rule's slots.

#[test]
fn misuse_is_a_compile_error_with_advice() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
