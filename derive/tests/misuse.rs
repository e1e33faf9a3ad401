//! Misuse of the whole crate fails to compile, with the recorded messages.
//!
//! The test is in this package because trybuild compiles with the features and dependencies of the tested package, and
//! this one has the fewest.
//!
//! The messages are those of Rust 1.95; other versions word some of them differently. To record them again:
//! `TRYBUILD=overwrite cargo test --test misuse`. The cases are only checked, which takes a fraction of a build. Doc
//! tests cover errors at monomorphization, such as those of a rule's slots.

#[test]
fn misuse_is_a_compile_error_with_advice() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
