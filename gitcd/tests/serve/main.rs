//! Features of `gitcd serve` beyond the API: flags, compaction, journal trimming, snapshots and restore, and more.

#[path = "../support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "each test program uses a part of it")]
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
mod snapshot;
mod storms;
#[cfg(feature = "otlp")]
mod traces;
mod transport;
mod trim;
mod upkeep;
mod wire;
