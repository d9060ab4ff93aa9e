//! `gitcd init`, cut off at each of its file-system calls.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use gitcd_powerloss::{Moment, Order};

use crate::machine::Machine;
use crate::support::build::{get, put};
use crate::support::{PATIENCE, Repository, Server};
use crate::{is_skipped, setting};

/// The state of the repository before `init`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    Absent,
    /// An existing repository with a file and its history.
    Theirs,
}

/// Calls tried per case in the short form, evenly spread.
const FEW: u64 = 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn init_that_was_cut_off_anywhere_is_run_again_and_what_it_said_it_did_is_done() {
    if is_skipped() {
        return;
    }
    let is_long = setting("GITCD_POWER_CYCLES").is_some();
    for (order, before) in [
        (Order::None, Before::Absent),
        (Order::Kept, Before::Absent),
        (Order::None, Before::Theirs),
        (Order::Kept, Before::Theirs),
    ] {
        let whole = prepare(order, before, 0);
        let start = whole.disk().changes();
        completes(&whole);
        let calls = whole.disk().changes() - start;
        let step = if is_long { 1 } else { calls.div_ceil(FEW) };
        println!("{order:?}, {before:?}: {calls} calls");
        // One more than it takes: by then, `init` has reported success.
        let tried: Vec<u64> = (1..=calls).step_by(step as usize).chain([calls + 1]).collect();
        for (call, is_killed) in tried.into_iter().flat_map(|call| [(call, false), (call, true)]) {
            if is_killed && !is_long && call % 2 == 0 {
                continue;
            }
            let mut machine = prepare(order, before, call);
            let said = cut_off(&mut machine, call, is_killed);
            println!("    {said}");
            if call <= calls {
                completes(&machine);
            }
            serves(&mut machine, before).await;
        }
    }
}

fn prepare(order: Order, before: Before, seed: u64) -> Machine {
    let machine = Machine::new(order, seed);
    if before == Before::Theirs {
        let git = |words: &[&str]| {
            let mut command = Command::new("git");
            command.current_dir(machine.folder()).args(words).env("GIT_CONFIG_GLOBAL", "/dev/null");
            let output = command.output().expect("git is installed");
            assert!(output.status.success(), "git {words:?}: {output:?}");
            String::from_utf8(output.stdout).expect("git's output is UTF-8").trim().to_owned()
        };
        git(&["init", "-q", "--bare", "-b", "main", "repo.git"]);
        let repository = Repository::at(&machine.repository());
        let blob = repository.blob("{\n  \"kind\": \"Test\"\n}\n");
        git(&["-C", "repo.git", "update-index", "--add", "--cacheinfo", &format!("100644,{blob},tests/theirs")]);
        let tree = git(&["-C", "repo.git", "write-tree"]);
        let commit = repository.git(&["commit-tree", "-m", "theirs", &tree]);
        repository.git(&["update-ref", "refs/heads/main", commit.trim()]);
    }
    machine.disk().settle();
    machine
}

/// Runs `gitcd init` up to this call, then cuts the power, or only kills it: writes that are not durable may then be lost
/// later.
fn cut_off(machine: &mut Machine, call: u64, is_killed: bool) -> String {
    machine.disk().arm(Moment::after(call));
    let mut child = init(machine);
    let at = loop {
        if machine.disk().wait_until_frozen(Duration::from_millis(20)) {
            break machine.disk().freeze();
        }
        if let Some(status) = child.try_wait().expect("the child is ours") {
            assert!(status.success(), "{status}");
            break "its exit".to_owned();
        }
    };
    machine.disk().disarm();
    // It may have exited by itself.
    let _ended = child.kill();
    machine.disk().release();
    child.wait().expect("the child is ours");
    if is_killed {
        machine.remount();
        return format!("killed at call {call}, {at}");
    }
    machine.fall_back(&format!("call {call}, {at}"))
}

/// Runs `gitcd init` until it succeeds.
fn completes(machine: &Machine) {
    let status = init(machine).wait().expect("the child is ours");
    assert!(status.success(), "{status}");
}

fn init(machine: &Machine) -> Child {
    let repository = format!("--repo={}", machine.repository().display());
    let words = ["init", &repository, "--key-prefixes=default=/registry"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_gitcd"));
    command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("gitcd can be started")
}

/// Checks that the branch can be served, has its previous content, and keeps a write across a power loss.
async fn serves(machine: &mut Machine, before: Before) {
    let mut server = machine.launch().start().await;
    holds(&server, before).await;
    let client = server.client().await;
    client.put(put("/registry/tests/mine", "1")).await.ok();
    // The power fails right after the acknowledgement.
    machine.power_off(&mut server);
    tokio::time::timeout(PATIENCE, server.restart()).await.expect("the server starts in time");
    holds(&server, before).await;
    let found = server.client().await.range(get("/registry/tests/mine")).await.ok();
    assert_eq!(found.kvs.first().map(|pair| &pair.value[..]), Some(&b"1"[..]));
    let repository = server.repository();
    repository.fsck();
    repository.verify();
    server.terminate().await;
    repository.fsck();
    assert_eq!(repository.files(crate::support::DATA).len(), 1 + usize::from(before == Before::Theirs));
}

async fn holds(server: &Server, before: Before) {
    let found = server.client().await.range(get("/registry/tests/theirs")).await.ok();
    assert_eq!(found.kvs.len(), usize::from(before == Before::Theirs));
}
