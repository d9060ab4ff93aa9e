//! Remotes that go wrong: away, moved back, damaged, full, closed, spoken to by many at once. Real processes on both sides.
//!
//! Each test shows what `/status` says meanwhile, that nothing acknowledged is lost, and that it goes on by itself.

#[path = "../support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "every test program uses another part of it")]
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
mod moved;
mod prepare;
mod races;
mod secrets;
mod shallow;
mod spoiler;
mod spoilt;
mod ssh;
mod tags;
mod tls;
mod world;
