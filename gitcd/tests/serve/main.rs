//! What the flags of `gitcd serve` change.

#[path = "../support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "every test program uses another part of it")]
mod support;

mod compaction;
mod transport;
