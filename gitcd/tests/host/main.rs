//! `gitcd host` and the stock `git`.

#[path = "../tls/authority.rs"]
#[allow(dead_code, reason = "each test program uses a part of it")]
mod authority;

mod access;
mod crash;
mod create;
mod events;
mod fetch;
mod git;
mod http;
mod limits;
mod memory;
mod mount;
mod names;
mod owner;
mod packs;
mod process;
mod push;
mod refuse;
mod tls;

use std::time::{Duration, Instant};

/// An upper bound for any wait, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until `condition` returns a value, polling it every 10 ms.
fn eventually<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(start.elapsed() < PATIENCE, "timed out after {PATIENCE:?} waiting for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Returns random bytes, which do not compress.
fn noise(length: usize) -> Vec<u8> {
    let mut noise = vec![0; length];
    rand::fill(&mut noise[..]);
    noise
}
