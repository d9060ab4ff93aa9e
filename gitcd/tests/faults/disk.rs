//! A full disk.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tonic::Code;

use super::{holds, value, write};
use crate::support::build::{get, put};
use crate::support::{Kind, Launch, Repository, eventually};

const DISK_BYTES: u64 = 96 << 20;
const EARLY: usize = 20;

/// A small file system that only a private mount namespace knows; it goes when the test does, however that ends.
struct SmallDisk {
    /// Keeps the namespace; ends with its standard input, so also with the test's process.
    keeper: Child,
    mount: tempfile::TempDir,
}

impl SmallDisk {
    /// Nothing, with the reason printed, if this machine does not let us.
    fn new() -> Option<Self> {
        let mount = tempfile::tempdir().expect("the temporary folder is writable");
        let script = format!(
            "mount -t tmpfs -o size={DISK_BYTES} tmpfs '{}' && echo mounted && exec cat",
            mount.path().display()
        );
        let mut unshare = Command::new("unshare");
        if !rustix::process::geteuid().is_root() {
            unshare.arg("--map-root-user");
        }
        let keeper =
            unshare.args(["--mount", "sh", "-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut keeper = match keeper {
            Ok(keeper) => keeper,
            Err(error) => return skip(&format!("unshare cannot be run: {error}")),
        };
        let mut line = String::new();
        let stdout = keeper.stdout.take().expect("piped");
        BufReader::new(stdout).read_line(&mut line).expect("a pipe can be read");
        if line != "mounted\n" {
            keeper.wait().expect("the child is ours");
            return skip("no mount namespace, or no mount in it, is allowed here");
        }
        Some(Self { keeper, mount })
    }

    fn path(&self) -> &Path {
        self.mount.path()
    }

    /// The same folder as this process can reach it.
    fn seen_from_here(&self) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.keeper.id()));
        root.join(self.path().strip_prefix("/").expect("a temporary folder is absolute"))
    }

    /// What runs a program within the namespace.
    fn wrapper(&self) -> Vec<String> {
        let mut words = vec!["nsenter".to_owned(), format!("--target={}", self.keeper.id()), "--mount".to_owned()];
        if !rustix::process::geteuid().is_root() {
            words.extend(["--user".to_owned(), "--preserve-credentials".to_owned()]);
        }
        words.push("--".to_owned());
        words
    }

    fn ballast(&self) -> PathBuf {
        self.seen_from_here().join("ballast")
    }

    /// Takes all the room that is left.
    fn fill(&self) {
        use std::io::Write;
        let mut file = std::fs::File::create(self.ballast()).expect("the disk is mounted");
        let block = vec![0; 1 << 16];
        while file.write_all(&block).is_ok() {}
        while file.write_all(&[0]).is_ok() {}
    }

    fn make_room(&self) {
        std::fs::remove_file(self.ballast()).expect("it was filled before");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        self.keeper.wait().expect("the child is ours");
    }
}

fn skip(reason: &str) -> Option<SmallDisk> {
    eprintln!("SKIPPED: {reason}");
    None
}

#[tokio::test]
async fn a_full_disk_stops_writes_but_not_reads_and_loses_nothing() {
    let Some(disk) = SmallDisk::new() else { return };
    let wrapper = disk.wrapper();
    let wrapper: Vec<_> = wrapper.iter().map(String::as_str).collect();
    let repository = Repository::init_through(&wrapper, &disk.path().join("repo.git"));
    let mut server = Launch::new(Kind::Gitcd).folder(disk.path()).wrapper(&wrapper).start().await;
    let client = server.client().await;
    write(&client, 0..EARLY).await;

    disk.fill();
    // The journal has set some room aside.
    let large = "x".repeat(256 << 10);
    let mut acknowledged = Vec::new();
    let refusal = loop {
        let key = format!("/registry/large/l{:04}", acknowledged.len());
        match client.put(put(&key, &large)).await.result() {
            Ok(answer) => acknowledged.push((key, answer.header.unwrap().revision)),
            Err(status) => break status,
        }
        assert!((acknowledged.len() as u64) < DISK_BYTES / large.len() as u64, "the disk is full, but writes go on");
    };
    assert_eq!(refusal.code(), Code::ResourceExhausted);
    assert_eq!(refusal.message(), "etcdserver: mvcc: database space exceeded");

    holds(&client, 0..EARLY).await;
    let revision = client.range(get("/registry/none")).await.ok().header.unwrap().revision;
    assert_eq!(revision, 1 + (EARLY + acknowledged.len()) as i64, "a refused write takes no revision");
    let again = client.put(put("/registry/none", &large)).await.refused(Code::ResourceExhausted);
    assert_eq!(again, refusal.message());
    assert_eq!(client.range(get("/registry/none")).await.ok().count, 0);

    disk.make_room();
    let written = eventually("writes to work again", async || {
        client.put(put("/registry/tests/after", &value(0))).await.result().ok()
    })
    .await;
    let written = written.header.unwrap().revision;
    for round in ["before", "after a kill"] {
        let client = server.client().await;
        holds(&client, 0..EARLY).await;
        for (key, revision) in &acknowledged {
            let pair = client.range(get(key)).await.ok().kvs.pop().unwrap_or_else(|| panic!("{key} is lost, {round}"));
            assert_eq!((pair.mod_revision, pair.value.len()), (*revision, large.len()), "{key}, {round}");
        }
        assert_eq!(client.range(get("/registry/tests/after")).await.ok().kvs[0].mod_revision, written);
        if round == "before" {
            server.kill();
            server.restart().await;
        }
    }
    // The committer, too, goes on where it had no room.
    server.terminate().await;
    repository.fsck();
    assert_eq!(repository.committed_revision(), written);
    assert_eq!(repository.files(crate::support::DATA).len(), EARLY + acknowledged.len() + 1);
}

#[tokio::test]
async fn a_start_on_a_full_disk_serves_reads_or_explains_itself() {
    let Some(disk) = SmallDisk::new() else { return };
    let wrapper = disk.wrapper();
    let wrapper: Vec<_> = wrapper.iter().map(String::as_str).collect();
    Repository::init_through(&wrapper, &disk.path().join("repo.git"));
    let mut server = Launch::new(Kind::Gitcd).folder(disk.path()).wrapper(&wrapper).start().await;
    write(&server.client().await, 0..EARLY).await;
    server.kill();

    disk.fill();
    // What the last journal file had set aside may be just enough.
    if let Some(exit) = server.restart_or_end().await {
        super::explains(&exit, &["repo.git", "space"]);
    } else {
        holds(&server.client().await, 0..EARLY).await;
        server.kill();
    }

    disk.make_room();
    server.restart().await;
    let client = server.client().await;
    holds(&client, 0..EARLY).await;
    write(&client, EARLY..EARLY + 1).await;
}
