//! `kill -9` at any moment loses nothing that was acknowledged or read.
//!
//! Writers, readers and watchers load a server that is killed again and again. After every restart the full history is read
//! back and checked against all that they attempted and saw ([`model`]).
//!
//! `GITCD_CRASH_CYCLES` sets the number of kills (default 5); `GITCD_CRASH_SEED` repeats a run's random choices.

#[path = "../support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "each test program uses a part of it")]
mod support;

mod history;
mod model;
mod model_test;
mod reader;
mod run;
mod writer;

use std::time::Duration;

use rand::Rng;
use support::{Kind, Server};

use run::Run;

/// Kills per store. Then a new store starts, as checking an ever longer history takes ever longer.
const LIFE: u64 = 25;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_or_seen_survives_kill_9() {
    let cycles = setting("GITCD_CRASH_CYCLES").unwrap_or(5);
    let seed = setting("GITCD_CRASH_SEED").unwrap_or_else(|| rand::rng().random_range(0..1_000_000));
    println!("GITCD_CRASH_CYCLES={cycles} GITCD_CRASH_SEED={seed}");

    let mut done = 0;
    for life in 0.. {
        let mut run = Run::new(Server::start(Kind::under_test()).await, seed + life);
        for _ in 0..LIFE.min(cycles - done) {
            done += 1;
            run.load_and_kill().await;
            run.restart().await;
            run.check().await;
            println!("cycle {done} of {cycles}: {run}");
        }
        if done == cycles {
            // Once is enough: it takes as long as the short leases last.
            run.leases_end().await;
        }
        run.stop_and_compare().await;
        if done == cycles {
            break;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_or_seen_survives_a_stop_under_load() {
    let seed = setting("GITCD_CRASH_SEED").unwrap_or_else(|| rand::rng().random_range(0..1_000_000));
    println!("GITCD_CRASH_SEED={seed}");
    let mut run = Run::new(Server::start(Kind::under_test()).await, seed);
    run.load_and_stop(Duration::from_millis(700)).await;
    run.restart().await;
    run.check().await;
    run.stop_and_compare().await;
}

fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} must be a number, not {text:?}")))
}
