//! A disk that loses power, and the server on it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use gitcd_powerloss::{Disk, Moment, Mount, Order, Tally};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::support::{Kind, Launch, Repository, Server};

/// A disk and its current mount point. Each mount uses a new folder, so that a process that outlived the power loss cannot
/// reach the disk.
pub(crate) struct Machine {
    disk: Disk,
    mount: Option<Mount>,
    mounts: TempDir,
    random: StdRng,
    pub(crate) faults: Faults,
}

/// Counts what was done to the machine.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    pub(crate) cuts: usize,
    /// Servers that were killed without a power loss.
    pub(crate) kills: usize,
    pub(crate) tally: Tally,
}

impl Machine {
    pub(crate) fn new(order: Order, seed: u64) -> Self {
        let mounts = tempfile::tempdir().expect("the temporary folder is writable");
        let mut machine = Self {
            disk: Disk::new(order),
            mount: None,
            mounts,
            random: StdRng::seed_from_u64(seed),
            faults: Faults::default(),
        };
        machine.power_on();
        machine
    }

    pub(crate) fn disk(&self) -> &Disk {
        &self.disk
    }

    pub(crate) fn random(&mut self) -> &mut StdRng {
        &mut self.random
    }

    /// The disk's mount point.
    pub(crate) fn folder(&self) -> &Path {
        self.mount.as_ref().expect("the disk is mounted").path()
    }

    pub(crate) fn repository(&self) -> PathBuf {
        self.folder().join("repo.git")
    }

    /// Starts a server on an empty repository.
    pub(crate) async fn serve(&self) -> Server {
        Repository::init(&self.repository());
        self.launch().start().await
    }

    pub(crate) fn launch(&self) -> Launch {
        Launch::new(Kind::Gitcd)
            .folder(self.folder())
            // Many small journal segments, most of which are removed soon.
            .argument("--journal-segment-bytes=32768")
            // Unreachable objects left by a power loss are pruned in later cycles.
            .argument("--gc-prune-expire=1h")
    }

    /// Cuts the power of the disk and the server. Returns the interrupted call, and what became of the writes that were not
    /// durable.
    pub(crate) fn power_off(&mut self, server: &mut Server) -> String {
        let at = self.disk.freeze();
        // Killed before it can see its calls return.
        server.signal(Signal::KILL);
        self.disk.release();
        server.kill();
        let said = self.fall_back(&at);
        server.move_to(self.folder());
        said
    }

    /// Kills the server with SIGKILL while the disk keeps its power.
    pub(crate) fn kill(&mut self, server: &mut Server) {
        self.disk.freeze();
        server.signal(Signal::KILL);
        self.disk.release();
        server.kill();
        self.remount();
        server.move_to(self.folder());
    }

    /// Remounts the disk without loss, as after a kill of the process that used it.
    pub(crate) fn remount(&mut self) {
        self.mount = None;
        self.faults.kills += 1;
        self.power_on();
    }

    /// Cuts the power of a disk that no process uses.
    pub(crate) fn fall_back(&mut self, at: &str) -> String {
        self.mount = None;
        let (seed, off) = (self.random.random(), [0, 60, 3600, 90_000][self.random.random_range(0..4)]);
        let tally = self.disk.cut(seed, Duration::from_secs(off));
        self.faults.cuts += 1;
        self.faults.tally += tally;
        self.power_on();
        let Tally { kept_writes, dropped_writes, torn_writes, kept_entries, dropped_entries } = tally;
        format!(
            "cut at {at}: writes {kept_writes} kept, {dropped_writes} dropped, {torn_writes} torn; \
             entries {kept_entries} kept, {dropped_entries} dropped; {off} s without power"
        )
    }

    /// Restarts the server; at random, the power fails or the server is killed during recovery.
    pub(crate) async fn restart(&mut self, server: &mut Server) {
        while self.random.random_bool(0.4) {
            let count = 1 << self.random.random_range(0..7);
            let count = self.random.random_range(1..=count);
            self.disk.arm(Moment::after(count));
            server.begin_restart();
            let disk = self.disk.clone();
            let frozen = async move {
                while !disk.is_frozen() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            tokio::select! {
                () = frozen => {}
                () = server.ready() => {
                    // The start took fewer calls than that, unless the disk froze at this very moment.
                    if !self.disk.disarm() {
                        return;
                    }
                }
            }
            // After a kill, writes that are not durable may still be lost by a later power cut.
            if self.random.random_bool(0.3) {
                self.kill(server);
                println!("    killed at start-up");
            } else {
                let said = self.power_off(server);
                println!("    again, at start-up: {said}");
            }
        }
        server.restart().await;
    }

    fn power_on(&mut self) {
        let at = self.mounts.path().join((self.faults.cuts + self.faults.kills).to_string());
        std::fs::create_dir(&at).expect("the temporary folder is writable");
        self.mount = Some(self.disk.mount(&at).expect("this machine can mount the disk"));
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.disk.release();
            let to = std::env::temp_dir().join(format!("power-{}", std::process::id()));
            match self.disk.export(&to) {
                Ok(()) => eprintln!("--- copy of the disk: {}", to.display()),
                Err(error) => eprintln!("--- cannot copy the disk: {error}"),
            }
        }
    }
}
