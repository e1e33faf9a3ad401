//! What must not compile, and what the compiler says then.
//!
//! The messages are those of Rust 1.95; other versions word some of them differently. To record them again:
//! `TRYBUILD=overwrite cargo test --test misuse`.
#![cfg(feature = "derive")]

#[test]
fn misuse_is_a_compile_error_with_advice() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/ui/*.rs");
    cases.pass("tests/ui/pass/*.rs");
}
