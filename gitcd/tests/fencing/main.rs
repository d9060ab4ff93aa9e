//! One writer at a time, with real processes and repositories, unreachable remotes and stopped machines.

#[path = "../support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "every test program uses another part of it")]
mod support;

mod clone;
mod exclusive;
mod host;
mod merged;
mod node;
mod refuse;
mod standby;
mod start;
mod turns;
