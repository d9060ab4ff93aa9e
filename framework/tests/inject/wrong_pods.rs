//! Pods that are wrong do not compile.

/// One file for each promise; what the compiler says is beside it.
#[test]
fn what_is_wrong_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/inject/ui/*.rs");
}
