//! Two replicas of one heaven on one branch, blue and green, each run by its own `trishanku run`: one writes, the other stands
//! by.

mod load;

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use trishanku::plane::state::Condition;
use trishanku::status::Health;
use trishanku_e2e::{git, is_long};

use self::load::Load;
use crate::machine::{Machine, PATIENCE};

/// Limit from a fault until the other kube-apiserver acknowledges writes.
const TAKEOVER: Duration = Duration::from_secs(5);
/// The limit on a busy machine.
const TAKEOVER_WHEN_BUSY: Duration = Duration::from_secs(20);

/// A fault that ends the turn of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    /// It cannot reach the shared repository.
    CutOff,
    /// All of its processes are killed.
    Killed,
    /// It is stopped gracefully.
    Stopped,
}

struct Replica {
    machine: Machine,
    manifest: PathBuf,
    /// A symbolic link to the shared repository.
    way: PathBuf,
    upstream: PathBuf,
}

impl Replica {
    fn new(upstream: &Path) -> Self {
        let machine = Machine::new();
        let way = machine.path("way");
        symlink(upstream, &way).unwrap();
        let text = include_str!("replica.yaml").replace("@UPSTREAM@", &way.display().to_string());
        let manifest = machine.write("replica.yaml", &text);
        Self { machine, manifest, way, upstream: upstream.into() }
    }

    fn start(&mut self, wanted: Health) {
        // A replica that is not ready after a few seconds stands by.
        let within = if wanted == Health::StandingBy { "--ready-within=4" } else { "--ready-within=90" };
        self.machine.start_until(
            std::slice::from_ref(&self.manifest),
            &["--image-program=sleep=sleep", within],
            wanted,
        );
    }

    /// Copies the certificates: replicas of a heaven share them.
    fn shares_certificates_with(&self, other: &Self) {
        let closed = |path: &Path| fs::DirBuilder::new().recursive(true).mode(0o700).create(path).unwrap();
        closed(self.machine.home().dir());
        let to = self.machine.home().secrets();
        for secret in fs::read_dir(other.machine.home().secrets()).unwrap().map(Result::unwrap) {
            let folder = to.join(secret.file_name());
            closed(&folder);
            for value in fs::read_dir(secret.path()).unwrap().map(Result::unwrap) {
                fs::copy(value.path(), folder.join(value.file_name())).unwrap();
            }
        }
    }

    fn cut_off(&self) {
        fs::remove_file(&self.way).unwrap();
    }

    fn reconnect(&self) {
        symlink(&self.upstream, &self.way).unwrap();
    }

    /// Waits until its kube-apiserver is warm and its controller waits.
    fn stands_by(&self) {
        self.machine.until("a standby with a kube-apiserver and no controller", || {
            let waits = |name: &str, runs: bool| {
                let component = self.machine.component(name);
                component.is_some_and(|it| it.pid.is_some() == runs && it.condition == Condition::Waiting)
            };
            self.machine.health() == Health::StandingBy
                && waits("shared/kube-apiserver", true)
                && waits("shared/app", false)
        });
    }

    fn acts(&self) -> bool {
        self.machine.component("shared/app").is_some_and(|app| app.condition == Condition::Ready)
    }
}

/// Ends the turn of one replica; returns once the other writes and the first one stands by.
fn trouble(kind: Trouble, replicas: &mut [Replica; 2], now: usize, load: &Load) {
    let [first, second] = replicas;
    let (old, new) = if now == 0 { (first, second) } else { (second, first) };
    new.stands_by();
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let acts = scope.spawn(|| {
            new.machine.until("its controller", || new.acts());
            begun.elapsed()
        });
        match kind {
            Trouble::CutOff => old.cut_off(),
            Trouble::Killed => old.machine.kill(),
            Trouble::Stopped => old.machine.stop(),
        }
        load.until_acknowledged(1 - now, 10, begun, PATIENCE);
        let first = load.first(1 - now, begun) - begun;
        let acts = acts.join().unwrap();
        println!(
            "{kind:?}: first acknowledgement of the other replica after {first:?}, its controller ready after {acts:?}"
        );
        let within = if is_long() { TAKEOVER } else { TAKEOVER_WHEN_BUSY };
        assert!(first <= within, "{kind:?}: first acknowledgement after {first:?}");
    });
    if kind == Trouble::CutOff {
        old.reconnect();
        old.stands_by();
    } else {
        old.start(Health::StandingBy);
    }
}

#[test]
fn of_two_replicas_one_acknowledges_at_a_time_and_nothing_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let upstream = folder.path().join("up.git");
    git::run(folder.path(), &["init", "--quiet", "--bare", "--initial-branch=main", "up.git"]).unwrap();
    let mut blue = Replica::new(&upstream);
    blue.start(Health::Ready);
    let mut green = Replica::new(&upstream);
    green.shares_certificates_with(&blue);
    green.start(Health::StandingBy);
    let mut replicas = [blue, green];
    let troubles = [Trouble::CutOff, Trouble::Killed, Trouble::Stopped];
    let kubeconfigs = replicas.each_ref().map(|replica| replica.machine.home().heavens().join("shared/kubeconfig"));
    let load = Load::start(&kubeconfigs);
    load.until_acknowledged(0, 10, Instant::now(), PATIENCE);
    for (turn, kind) in troubles.into_iter().enumerate() {
        trouble(kind, &mut replicas, turn % 2, &load);
    }
    let all = load.end();

    let turns: Vec<_> = all.chunk_by(|one, next| one.by == next.by).map(|turn| (turn[0].by, turn.len())).collect();
    println!("acknowledged in turn: {turns:?}");
    assert_eq!(turns.len(), troubles.len() + 1, "replicas and their acknowledgements in a row: {turns:?}");
    // Writes that were not pushed in time were merged from a side branch.
    let writer = &replicas[troubles.len() % 2].machine;
    let kubectl = writer.kubectl(Some("shared"));
    writer.until("all acknowledged objects", || {
        let found = kubectl.run(&["get", "configmaps", "--output=name"]).unwrap_or_default();
        let found: std::collections::BTreeSet<_> = found.lines().collect();
        all.iter().all(|one| found.contains(format!("configmap/{}", one.name).as_str()))
    });
    for replica in &mut replicas {
        replica.machine.stop();
    }
}
