//! Memory that a large pull takes.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gitcd::proto::etcdserverpb::RangeRequest;

use crate::support::build::{list, put};
use crate::support::eventually;
use crate::world::{Following, bare, remote};

const MIB: u64 = 1 << 20;
const VALUES: u64 = 48;

/// Commits values of 1 MiB, which compress by a quarter.
fn fill(folder: &std::path::Path) {
    let mut command = Command::new("git");
    let command = command.arg("-C").arg(folder).args(["fast-import", "--quiet"]).stdin(Stdio::piped());
    let mut git = command.spawn().expect("git is installed");
    let mut input = std::io::BufWriter::new(git.stdin.take().expect("it is piped"));
    let mut write = |bytes: &[u8]| input.write_all(bytes).expect("git reads");
    write(b"commit refs/heads/main\ncommitter a <a@b> 1700000000 +0000\ndata 5\nlarge\n");
    let (mut noise, mut value) = (File::open("/dev/urandom").expect("this is Linux"), vec![0; MIB as usize]);
    for number in 0..VALUES {
        write(format!("M 100644 inline tests/{number:03}\ndata {MIB}\n").as_bytes());
        noise.read_exact(&mut value).expect("it has no end");
        // Sixty-four printable characters.
        value.iter_mut().for_each(|byte| *byte = b'0' + (*byte & 0x3f));
        write(&value);
        write(b"\n");
    }
    drop(input);
    assert!(git.wait().expect("it was started").success());
}

/// The memory of a process without mapped files, which the kernel can drop; 0 if it has exited.
fn anonymous(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or_default() * 1024
}

/// The values themselves stay in memory, as the newest ones of every store do. Nothing else of their size may be there.
#[tokio::test]
async fn a_pull_takes_little_more_memory_than_its_values() {
    let folder = tempfile::tempdir().expect("the temporary folder is writable");
    let up = bare(&folder);
    fill(up.path());
    let follower = Following::of(up.path()).without_pushes().start().await;
    let (pid, is_over) = (follower.server.id(), Arc::new(AtomicBool::new(false)));
    let watcher = std::thread::spawn({
        let is_over = is_over.clone();
        move || {
            let mut most = 0;
            loop {
                // In this order, so that the last look is after the end.
                let (is_last, now) = (is_over.load(Ordering::SeqCst), anonymous(pid));
                most = most.max(now);
                if is_last || now == 0 {
                    return most;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    });
    let copied = async || remote(&follower.server).await.seen;
    eventually("the copy", copied).await;
    let count = RangeRequest { count_only: true, ..list("/registry/tests/") };
    let merged = async || (follower.client.range(count.clone()).await.ok().count == VALUES as i64).then_some(());
    eventually("the merge", merged).await;
    is_over.store(true, Ordering::SeqCst);
    let most = watcher.join().expect("the watcher only reads");
    assert!((VALUES * MIB..(VALUES + 60) * MIB).contains(&most), "{} MiB", most / MIB);
}

/// Every merge reads the tree of a directory from packs, of which each fetch and each commit adds one.
#[tokio::test]
async fn many_pulls_keep_nothing_of_what_they_read() {
    const KEYS: usize = 10_000;
    const PULLS: usize = 150;
    let folder = tempfile::tempdir().expect("the temporary folder is writable");
    let up = bare(&folder);
    let commit = |keys: std::ops::Range<usize>, value: usize, from: &str| {
        let mut command = Command::new("git");
        let command = command.arg("-C").arg(up.path()).args(["fast-import", "--quiet"]).stdin(Stdio::piped());
        let mut git = command.spawn().expect("git is installed");
        let mut input = std::io::BufWriter::new(git.stdin.take().expect("it is piped"));
        let time = 1_700_000_000 + value;
        let mut text = format!("commit refs/heads/main\ncommitter a <a@b> {time} +0000\ndata 5\nsmall\n{from}");
        for key in keys {
            let value = format!("{key} {value}");
            writeln!(text, "M 100644 inline tests/{key:05}\ndata {}\n{value}", value.len()).expect("it is in memory");
        }
        input.write_all(text.as_bytes()).expect("git reads");
        drop(input);
        assert!(git.wait().expect("it was started").success());
    };
    commit(0..KEYS, 0, "");
    let follower = Following::of(up.path()).without_pushes().start().await;
    let mut before = 0;
    for number in 0..=PULLS {
        if number == PULLS / 3 {
            before = anonymous(follower.server.id());
        }
        // A change here as well, so that every pull is a merge.
        let here = format!("/registry/tests/{:05}", KEYS / 2 + number * 19 % (KEYS / 2));
        follower.client.put(put(&here, &format!("here {number}"))).await.ok();
        let key = number * 17 % (KEYS / 2);
        commit(key..key + 1, number + 1, "from refs/heads/main^0\n");
        let (name, value) = (format!("/registry/tests/{key:05}"), format!("{key} {}", number + 1));
        let get = RangeRequest { key: name.into(), ..RangeRequest::default() };
        let merged = async || {
            let found = follower.client.range(get.clone()).await.ok();
            found.kvs.first().filter(|kv| kv.value == value.as_bytes()).map(|_| ())
        };
        eventually("the merge", merged).await;
    }
    let grown = anonymous(follower.server.id()).saturating_sub(before);
    assert!(grown < 24 * MIB, "{} MiB more after {PULLS} pulls", grown / MIB);
}
