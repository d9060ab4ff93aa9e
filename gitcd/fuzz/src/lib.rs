//! Checks of gitcd on arbitrary bytes.
//!
//! Each module is a target: its `run` accepts any bytes and panics if a promise is broken. libFuzzer calls it through
//! `fuzz_targets/`; `gitcd/tests/fuzz/` calls it with the corpus and mutations of it, as an ordinary test.

pub mod backup;
pub mod journal;
pub mod json;
pub mod pack;
pub mod path;
pub mod request;

mod disk;
mod input;
