//! What is checked of gitcd on bytes that nobody chose.
//!
//! Each module is a target: its `run` takes any bytes and panics if a promise is broken. libFuzzer calls it through
//! `fuzz_targets/`; `gitcd/tests/fuzz/` calls it with the corpus and mutations of it, as an ordinary test.

pub mod backup;
pub mod journal;
pub mod json;
pub mod path;
pub mod request;

mod disk;
mod input;
