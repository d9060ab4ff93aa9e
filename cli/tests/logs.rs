//! `trishanku logs`, of a control plane whose programs are scripts.
#![expect(clippy::unwrap_used, reason = "a failing helper fails the test")]

mod sandbox;

use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use trishanku::plane::log;

use self::sandbox::{PATIENCE, Sandbox, printed};

/// A gitcd that logs one line at each start, and never becomes ready.
const GITCD: &str = "echo \"serving as $$\"; echo $$ >> \"$(dirname \"$0\")/pids\"; exec sleep 600";
const UP: [&str; 2] = ["up", "--central"];

/// A `trishanku logs --follow`, which is killed on drop.
struct Follower {
    child: Child,
    lines: Receiver<String>,
}

impl Follower {
    fn start(sandbox: &Sandbox, args: &[&str]) -> Self {
        let mut command = sandbox.command(&["logs", "--follow"]);
        let mut child = command.args(args).stdout(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || out.lines().try_for_each(|line| sender.send(line.unwrap())));
        Self { child, lines }
    }

    fn next(&self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("a line in time")
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

#[test]
fn follow_survives_a_restart_and_a_rotation_and_ends_with_ctrl_c() {
    let sandbox = Sandbox::with_gitcd(GITCD);
    let mut up = sandbox.start(&UP);
    let first = sandbox.processes("pids", 1)[0].pid;
    let mut follower = Follower::start(&sandbox, &["gitcd"]);
    assert_eq!(follower.next(), format!("serving as {first}"));

    // The start moves the log aside.
    assert!(sandbox.trishanku(&["down"]).status.success());
    up.exit();
    let mut up = sandbox.start(&UP);
    let second = sandbox.processes("pids", 2).last().unwrap().pid;
    assert_eq!(follower.next(), format!("serving as {second}"));

    // The supervisor copies and truncates a large log.
    let path = sandbox.home().log("gitcd");
    let mut gitcd = OpenOptions::new().append(true).open(&path).unwrap();
    let long = "x".repeat(32 << 10);
    for number in 0..600 {
        writeln!(gitcd, "{number} {long}").unwrap();
    }
    log::rotate_if_large(&path).unwrap();
    writeln!(gitcd, "after the rotation").unwrap();
    for number in 0..600 {
        let line = follower.next();
        assert!(line.ends_with(&long) && line.starts_with(&format!("{number} ")), "{number}: {}", &line[..9]);
    }
    assert_eq!(follower.next(), "after the rotation");
    assert!(path.metadata().unwrap().len() < 100);

    let id = Pid::from_child(&follower.child);
    kill_process(id, Signal::INT).unwrap();
    // A shell shows 130, and stops its loop.
    assert_eq!(follower.child.wait().unwrap().signal(), Some(2));
    assert!(follower.lines.recv_timeout(PATIENCE).is_err(), "there are more lines");
    assert!(sandbox.trishanku(&["down"]).status.success());
    up.exit();
}

#[test]
fn follow_ends_when_its_reader_or_its_folder_is_gone() {
    let sandbox = Sandbox::with_gitcd("echo serving; exit 4");
    sandbox.failing_up(&[]);
    let mut command = sandbox.command(&["logs", "--follow", "gitcd"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "serving\n");
    // Nothing is written any more, and it ends all the same.
    drop(out);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");

    let mut follower = Follower::start(&sandbox, &["--tail=1"]);
    let line = follower.next();
    assert!(line.starts_with("gitcd ") && line.ends_with(" | serving"), "{line}");
    assert!(sandbox.trishanku(&["delete", "--yes"]).status.success());
    assert!(follower.child.wait().unwrap().success());
}

#[test]
fn logs_of_a_stopped_control_plane_are_printed_without_escape_sequences() {
    let sandbox =
        Sandbox::with_gitcd("printf '\\033[32mINFO\\033[0m one\\ntwo \\033]0;x\\007 \\377\\nthree' >&2; exit 4");
    let none = sandbox.trishanku(&["logs"]);
    let said = printed(&none);
    assert!(none.status.code() == Some(1) && said.contains("no control plane was started there"), "{said}");

    sandbox.failing_up(&[]);
    let logs = |args: &[&str]| {
        let output = sandbox.trishanku(&[&["logs"], args].concat());
        assert!(output.status.success(), "{args:?}: {output:?}");
        printed(&output)
    };
    assert_eq!(logs(&["gitcd"]), "INFO one\ntwo \u{fffd}]0;x\u{fffd} \u{fffd}\nthree\n");
    assert_eq!(logs(&["gitcd", "--tail=2"]), "two \u{fffd}]0;x\u{fffd} \u{fffd}\nthree\n");
    assert_eq!(logs(&["gitcd", "--tail", "0"]), "");
    // The other components were not started, so they have no log.
    assert_eq!(logs(&["--tail=1"]), "gitcd                   | three\n");

    let refused = |args: &[&str], expected: &str| {
        let output = sandbox.trishanku(&[&["logs"], args].concat());
        let said = printed(&output);
        assert!(output.status.code() == Some(1) && said.contains(expected), "{args:?}: {said}");
    };
    refused(
        &["kubelet"],
        "no component or heaven \"kubelet\"; components: gitcd, kube-apiserver, kube-controller-manager, kube-scheduler",
    );
    refused(&["gitcd", "--previous"], "there is no previous log of gitcd in ");
    refused(&["kube-apiserver"], "there is no log of kube-apiserver in ");
    sandbox.script("gitcd", "echo second; exit 1");
    sandbox.failing_up(&[]);
    assert_eq!(logs(&["gitcd"]), "second\n");
    assert_eq!(logs(&["gitcd", "-p", "--tail=1"]), "three\n");
}
