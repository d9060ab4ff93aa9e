//! Faulty remotes: unreachable, moved back, damaged, full, forbidden, or contended. Real processes on both sides.
//!
//! Each test checks what `/status` reports meanwhile, that no acknowledged write is lost, and that gitcd recovers by itself.

#[path = "../support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "each test program uses a part of it")]
mod support;

#[path = "../tls/authority.rs"]
#[allow(dead_code, reason = "only a part of it is used")]
mod authority;
#[path = "../faults/small_disk.rs"]
mod small_disk;

mod away;
mod clone;
mod failure;
mod full;
mod garbage;
mod host;
mod memory;
mod moved;
mod orphans;
mod plain_http;
mod prepare;
mod progress;
mod races;
mod secrets;
mod shallow;
mod spoiler;
mod spoilt;
mod ssh;
mod tags;
mod tls;
mod world;
