//! Snapshots of large stores: memory, slow clients, and clients that disconnect.

use std::fs;
use std::time::Duration;

use gitcd::proto::etcdserverpb::SnapshotRequest;

use super::support::build::put;
use super::support::{Client, Kind, Launch, Server, eventually};

const MIB: u64 = 1 << 20;
const VALUES: usize = 100;

async fn start() -> Server {
    // Superseded values stay in the journal, and values are not compressible.
    Launch::new(Kind::Gitcd)
        .argument("--max-old-value-bytes=1048576")
        .argument("--max-journal-bytes=2147483648")
        .start()
        .await
}

async fn fill(client: &Client) {
    for key in 0..VALUES {
        let value = format!("{key:04}").repeat(1 << 18);
        client.aside().put(put(&format!("/registry/{key:05}"), &value)).await.ok();
        client.aside().put(put(&format!("/registry/{key:05}"), "small")).await.ok();
    }
}

fn resident(server: &Server) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.id())).expect("the process runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it has memory");
    line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).expect("it is a number") * 1024
}

/// Returns the sizes of the server's open files that have no name.
fn unnamed(server: &Server) -> Vec<u64> {
    let files = fs::read_dir(format!("/proc/{}/fd", server.id())).expect("the process runs").flatten();
    let unnamed = files.filter(|file| {
        fs::read_link(file.path()).is_ok_and(|target| {
            let target = target.to_string_lossy();
            target.contains("repo.git") && target.ends_with(" (deleted)")
        })
    });
    unnamed
        .filter_map(|file| fs::metadata(file.path()).ok())
        .map(|found| found.len())
        .filter(|size| *size > MIB)
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_takes_little_memory_however_slowly_it_is_read() {
    let server = start().await;
    let client = server.client().await;
    fill(&client).await;
    let before = resident(&server);
    let mut parts = client.snapshot(SnapshotRequest {}).await.expect("there is room").into_inner();
    let (mut bytes, mut messages, mut most) = (0, 0_u32, 0);
    while let Some(part) = parts.message().await.expect("the file is readable") {
        bytes += part.blob.len() as u64;
        messages += 1;
        if messages.is_multiple_of(200) {
            tokio::time::sleep(Duration::from_millis(50)).await;
            most = most.max(resident(&server).saturating_sub(before));
        }
    }
    assert!(bytes > VALUES as u64 * MIB, "{bytes}");
    eprintln!("the server took {} MiB for a snapshot of {} MiB", most / MIB, bytes / MIB);
    assert!(most < 30 * MIB, "{} MiB", most / MIB);
    eventually("the file to be closed", async || unnamed(&server).is_empty().then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_file_of_a_snapshot_is_gone_when_its_client_disconnects_and_has_no_name_in_a_crash() {
    let mut server = start().await;
    let client = server.client().await;
    fill(&client).await;
    let names = || {
        let entries = fs::read_dir(server.folder().join("repo.git")).expect("it is a folder").flatten();
        let mut names: Vec<_> = entries.map(|entry| entry.file_name()).collect();
        names.sort();
        names
    };
    let before = names();
    let mut parts = client.snapshot(SnapshotRequest {}).await.expect("there is room").into_inner();
    assert!(parts.message().await.expect("the file is readable").is_some());
    assert_eq!(unnamed(&server).len(), 1);
    assert_eq!(names(), before, "the file has no name");
    drop(parts);
    eventually("the file to be closed", async || unnamed(&server).is_empty().then_some(())).await;
    // Two at a time, of which neither is read.
    let mut unread = Vec::new();
    for _ in 0..2 {
        unread.push(client.snapshot(SnapshotRequest {}).await.expect("there is room"));
    }
    assert_eq!(unnamed(&server).len(), 2);
    server.kill();
    let entries = fs::read_dir(server.folder().join("repo.git")).expect("it is a folder").flatten();
    assert!(entries.count() <= before.len(), "a crash leaves nothing");
}
