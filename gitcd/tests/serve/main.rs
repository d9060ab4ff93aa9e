//! What `gitcd serve` does beyond answering: flags, compaction, trimming, snapshots and their way back.

#[path = "../support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "every test program uses another part of it")]
mod support;

#[cfg(feature = "otlp")]
#[path = "../tls/authority.rs"]
mod authority;
#[cfg(feature = "otlp")]
mod clients;
mod collector;
mod compaction;
mod figures;
mod hashes;
mod kills;
mod listening;
mod pages;
mod people;
mod range_stream;
mod reflection;
mod remotes;
mod restore;
mod storms;
#[cfg(feature = "otlp")]
mod traces;
mod transport;
mod trim;
mod upkeep;
mod wire;
