//! A disk that ignores fsync loses data: proof that these tests detect missing fsyncs.

use std::panic::AssertUnwindSafe;

use futures::FutureExt;
use gitcd_powerloss::Order;

use crate::machine::Machine;
use crate::run::Run;
use crate::{cycle, is_skipped};

/// Cycles within which a loss shows up.
const TRIES: u64 = 12;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_lies_about_the_journal_loses_what_was_acknowledged() {
    a_lie_is_found("/journal/").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_lies_about_packs_loses_what_references_lead_to() {
    a_lie_is_found("objects/pack").await;
}

async fn a_lie_is_found(about: &str) {
    if is_skipped() {
        return;
    }
    for seed in 0..TRIES {
        let mut machine = Machine::new(Order::Kept, seed);
        let server = machine.serve().await;
        machine.disk().settle();
        machine.disk().lie_about(about);
        let mut run = Run::new(server, seed);
        let tried = AssertUnwindSafe(async { cycle(&mut machine, &mut run).await }).catch_unwind();
        if let Err(problem) = tried.await {
            let said = problem.downcast_ref::<String>().map_or("a check failed", String::as_str);
            println!("detected, as expected: {}", said.lines().next().unwrap_or_default());
            return;
        }
    }
    panic!("{TRIES} power losses on a disk that ignores fsync of {about} went undetected");
}
