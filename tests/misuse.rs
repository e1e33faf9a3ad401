//! What must not compile, and what the compiler says then.
#![cfg(feature = "derive")]

#[test]
fn misuse_is_a_compile_error_with_advice() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
