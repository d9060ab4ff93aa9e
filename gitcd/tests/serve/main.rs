//! What the flags of `gitcd serve` change.

#[path = "../support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "every test program uses another part of it")]
mod support;

#[cfg(feature = "otlp")]
#[path = "../tls/authority.rs"]
mod authority;
#[cfg(feature = "otlp")]
mod collector;
mod compaction;
#[cfg(feature = "otlp")]
mod traces;
mod transport;
