//! A power loss at any moment loses nothing that was acknowledged or read.
//!
//! The server's repository is on a file system ([`gitcd_powerloss`]) that stops in the middle of some call and then falls back
//! to its durable state: each other write is kept, dropped or torn, each other directory change is kept or dropped. After every
//! restart the full history is read back and checked against all that the clients attempted and saw, as after `kill -9`
//! (`../crash`).
//!
//! `GITCD_POWER_CYCLES` sets the number of cycles (default 16); `GITCD_POWER_SEED` repeats a run's random choices.

#[path = "../support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "each test program uses a part of it")]
mod support;

#[path = "../crash/history.rs"]
mod history;
#[path = "../crash/model.rs"]
mod model;
#[path = "../crash/reader.rs"]
mod reader;
#[path = "../crash/run.rs"]
#[allow(dead_code, reason = "the crash test uses the rest")]
mod run;
#[path = "../crash/writer.rs"]
mod writer;

mod init;
mod lies;
mod machine;

use std::time::Duration;

use gitcd::proto::etcdserverpb::DefragmentRequest;
use gitcd::proto::etcdserverpb::maintenance_client::MaintenanceClient;
use gitcd_powerloss::{Moment, Order, why_not};
use rand::Rng;

use machine::Machine;
use run::Run;

/// Cycles per store. Then a new store starts, as checking an ever longer history takes ever longer.
const LIFE: u64 = 20;
/// The latest moment at which the disk freezes.
const LONGEST: Duration = Duration::from_millis(1500);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_or_seen_survives_a_loss_of_power() {
    if is_skipped() {
        return;
    }
    let cycles = setting("GITCD_POWER_CYCLES").unwrap_or(16);
    let seed = setting("GITCD_POWER_SEED").unwrap_or_else(|| rand::rng().random_range(0..1_000_000));
    println!("GITCD_POWER_CYCLES={cycles} GITCD_POWER_SEED={seed}");
    let mut done = 0;
    for life in 0.. {
        let order = if life % 2 == 0 { Order::None } else { Order::Kept };
        // The short form covers both orders.
        let length = LIFE.min(cycles.div_ceil(2)).min(cycles - done);
        if length == 0 {
            break;
        }
        let mut machine = Machine::new(order, seed + life);
        let mut run = Run::new(machine.serve().await, seed + life);
        for _ in 0..length {
            done += 1;
            let said = cycle(&mut machine, &mut run).await;
            println!("cycle {done} of {cycles}, {order:?}, {said}: {run}");
        }
        run.stop_and_compare().await;
        println!("{:?}", machine.faults);
    }
}

/// Runs all clients, cuts the power at a random moment, restarts, and checks the history.
async fn cycle(machine: &mut Machine, run: &mut Run) -> String {
    let clients = run.load().await;
    let (moment, joins) = moment(machine);
    machine.disk().arm(moment);
    if joins {
        let channel = run.server().channel().await;
        // It returns once the repack has started; the power may fail before.
        tokio::spawn(async move { MaintenanceClient::new(channel).defragment(DefragmentRequest {}).await });
    }
    let disk = machine.disk().clone();
    let _late = tokio::task::spawn_blocking(move || disk.wait_until_frozen(LONGEST)).await;
    if machine.random().random_bool(0.1) {
        machine.kill(run.server());
        run.gather(clients).await;
        machine.restart(run.server()).await;
        run.check().await;
        return "killed".to_owned();
    }
    let said = machine.power_off(run.server());
    run.gather(clients).await;
    machine.restart(run.server()).await;
    run.check().await;
    said
}

/// Returns when the power fails, and whether to start a repack meanwhile.
fn moment(machine: &mut Machine) -> (Moment, bool) {
    let random = machine.random();
    let any = |random: &mut rand::rngs::StdRng, bits: u32| {
        let most = 1_u64 << random.random_range(0..=bits);
        random.random_range(1..=most)
    };
    match random.random_range(0..8) {
        0 | 1 => (Moment::after(any(random, 11)), false),
        2 => (Moment::after(any(random, 8)).near("/journal/"), false),
        3 => (Moment::after(any(random, 6)).near("objects/pack"), false),
        4 => (Moment::after(any(random, 6)).near("refs"), false),
        5 => (Moment::after(any(random, 3)).near("snapshot"), false),
        6 => (Moment::after(any(random, 6)).near("gitcd-maintenance"), true),
        _ => (Moment::after(any(random, 4)).near("objects/info"), true),
    }
}

/// Whether this machine cannot mount the disk; prints the reason.
fn is_skipped() -> bool {
    why_not().inspect(|reason| println!("SKIPPED: cannot create a disk that loses power: {reason}")).is_some()
}

fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} must be a number, not {text:?}")))
}
