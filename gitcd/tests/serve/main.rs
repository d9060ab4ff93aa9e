//! What `gitcd serve` does beyond answering: flags, compaction, trimming, snapshots and their way back.

#[path = "../support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "every test program uses another part of it")]
mod support;

mod compaction;
mod pages;
mod restore;
mod transport;
mod trim;
