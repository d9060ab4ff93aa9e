//! Faults, one after the other, each followed by the same check.
//!
//! In each round, objects are made at both heavens while something goes wrong. Then it is put right, and soon after all branches are at one commit and stay there, every object whose
//! making was acknowledged is at both, and the manager says of all that they are ready. `TRISHANKU_E2E_SOAK` makes it go on for so many minutes, in an order that is another one each time; `TRISHANKU_E2E_SEED` repeats one.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, ensure};
use serde_json::Value;
use trishanku_e2e::nodes::Faults;
use trishanku_e2e::wait::until_within;

use crate::headless::{CONTROLLERS, SCHEDULERS};
use crate::world::{PATIENCE, World};

/// So long after a fault all agree at the latest: kubelet's pause before it starts a container again is the most of it.
const AGREE_WITHIN: Duration = Duration::from_mins(3);
/// Branches that agreed and then do not move for so long do not flap.
const QUIET: Duration = Duration::from_secs(3);
/// The merge of their branches.
const MERGE: &str = "sample-k8s-kcm";
/// How many faults there are without `TRISHANKU_E2E_SOAK`: each once.
const ROUNDS: usize = FAULTS.len();

/// What goes wrong.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// A container is killed: of pods with this label, by its name.
    Killed(&'static str, &'static str),
    /// A pod is deleted.
    Deleted(&'static str),
    /// Two of them are cut off from one another.
    Cut(Part, Part),
    /// A program of the node is away for a while.
    Away(&'static str),
    /// The disk is full that all pods have their volumes on.
    DiskFull,
}

/// Whom a network can cut off.
#[derive(Clone, Copy, Debug)]
enum Part {
    /// A pod with this label, in the namespace of the heavens.
    Pod(&'static str),
    Manager,
    /// The host cluster's kube-apiserver.
    Apiserver,
}

const OF_CONTROLLERS: &str = "controllers.trishanku.org/heaven=sample-k8s-kcm";
const OF_SCHEDULERS: &str = "controllers.trishanku.org/heaven=sample-k8s-kube-scheduler";
const OF_MERGE: &str = "controllers.trishanku.org/automated-merge=sample-k8s-kcm";
const OF_HOST: &str = "app.kubernetes.io/name=git-host";
const OF_MANAGER: &str = "app.kubernetes.io/name=trishanku-manager --namespace trishanku-system";

/// All pairs of them that speak with one another over the network are among these: heavens do so by way of the Git host alone.
const FAULTS: [Fault; 14] = [
    Fault::Killed(OF_CONTROLLERS, "gitcd"),
    Fault::Killed(OF_SCHEDULERS, "kube-apiserver"),
    Fault::Killed(OF_MERGE, "gitcd"),
    Fault::Killed(OF_HOST, "gitcd"),
    Fault::Deleted(OF_MERGE),
    Fault::Cut(Part::Pod(OF_SCHEDULERS), Part::Pod(OF_HOST)),
    Fault::Cut(Part::Pod(OF_CONTROLLERS), Part::Pod(OF_HOST)),
    Fault::Cut(Part::Pod(OF_MERGE), Part::Pod(OF_HOST)),
    Fault::Cut(Part::Manager, Part::Apiserver),
    Fault::Away("kube-apiserver"),
    Fault::Away("store"),
    Fault::Away("kubelet"),
    Fault::Away("containerd"),
    Fault::DiskFull,
];

impl Part {
    fn address(self, world: &World, faults: &dyn Faults) -> anyhow::Result<String> {
        let label = match self {
            Self::Pod(label) => label,
            Self::Manager => OF_MANAGER,
            Self::Apiserver => return Ok(faults.node_address().to_owned()),
        };
        retried("a pod with an address", || address(&pod(world, label)?))
    }
}

/// What was acknowledged, and has to be there in the end.
#[derive(Default)]
struct Ledger {
    acknowledged: BTreeSet<String>,
    refused: usize,
    next: usize,
}

pub(crate) fn whatever_is_killed_or_cut_off_all_agree_soon_after_and_nothing_acknowledged_is_lost(
    world: &Arc<World>,
) -> anyhow::Result<()> {
    let Some(faults) = world.cluster().faults() else {
        eprintln!("nothing can be made to go wrong in this cluster: not shown");
        return Ok(());
    };
    let since_1970 = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_secs());
    let seed = std::env::var("TRISHANKU_E2E_SEED").ok().map(|seed| seed.parse::<u64>()).transpose()?;
    let soak = std::env::var("TRISHANKU_E2E_SOAK").ok().map(|minutes| minutes.parse::<u64>()).transpose()?;
    // What runs with everything else does the same each time.
    let seed = seed.unwrap_or_else(|| if soak.is_some() { since_1970() } else { 1 });
    let until = Instant::now() + Duration::from_mins(soak.unwrap_or(0));
    eprintln!("TRISHANKU_E2E_SEED={seed}");
    let mut dice = Dice(seed.max(1));
    let mut ledger = Ledger::default();
    let mut slowest = Duration::ZERO;
    agree(world, &ledger)?;
    let mut order: Vec<usize> = Vec::new();
    let mut rounds = 0;
    while rounds < ROUNDS || Instant::now() < until {
        // Every kind once before any a second time.
        if order.is_empty() {
            order = dice.shuffled(FAULTS.len());
        }
        let fault = FAULTS[order.pop().unwrap_or_default()];
        let took = round(world, faults, fault, &mut ledger)
            .with_context(|| format!("{fault:?}, round {rounds} of seed {seed}"))?;
        eprintln!("{fault:?}: agreed after {took:?}");
        slowest = slowest.max(took);
        rounds += 1;
    }
    eprintln!(
        "{rounds} faults, {} objects acknowledged and {} refused; at the latest they agreed after {slowest:?}",
        ledger.acknowledged.len(),
        ledger.refused
    );
    Ok(())
}

fn round(world: &World, faults: &dyn Faults, fault: Fault, ledger: &mut Ledger) -> anyhow::Result<Duration> {
    ledger.write(world);
    match fault {
        Fault::Killed(label, container) => {
            retried("a container to kill", || faults.kill_container(&container_id(&pod(world, label)?, container)?))?;
        }
        Fault::Deleted(label) => retried("a pod to delete", || {
            let pod = pod(world, label)?;
            let name = pod["metadata"]["name"].as_str().context("a pod has a name")?;
            world.kubectl(&format!("delete pod {name} --wait=false")).map(drop)
        })?,
        Fault::Cut(one, other) => {
            let (one, other) = (one.address(world, faults)?, other.address(world, faults)?);
            faults.cut(&one, &other)?;
            // They work on, each for itself.
            ledger.write(world);
            ledger.write(world);
            faults.mend(&one, &other)?;
        }
        Fault::Away(name) => {
            // What runs, runs on; nobody can look at it by way of the host's kube-apiserver.
            let heavens = world.heavens()?;
            faults.kill_program(name)?;
            ledger.write_at(&heavens);
            faults.start_program(name)?;
        }
        Fault::DiskFull => {
            let heavens = world.heavens()?;
            faults.fill_disk()?;
            // What is acknowledged now has found room all the same: in what a journal took before.
            ledger.write_at(&heavens);
            ledger.write_at(&heavens);
            faults.free_disk()?;
        }
    }
    let begun = Instant::now();
    ledger.write(world);
    agree(world, ledger)?;
    Ok(begun.elapsed())
}

/// Waits until all is as it should be, and stays so.
fn agree(world: &World, ledger: &Ledger) -> anyhow::Result<()> {
    let (mut before, mut since) = (String::new(), Instant::now());
    until_within("all to agree", AGREE_WITHIN + QUIET, || {
        let folder = world.file("heads");
        if !folder.exists() {
            std::fs::create_dir(&folder)?;
        }
        let heads = world.git(&folder, &["ls-remote", "REMOTE", "kcm/data", "scheduler/data", "upstream/data"])?;
        if heads != before {
            (before, since) = (heads.clone(), Instant::now());
        }
        let ids: BTreeSet<_> = heads.lines().filter_map(|line| line.split('\t').next()).collect();
        ensure!(heads.lines().count() == 3 && ids.len() == 1, "the branches are at\n{heads}");
        ensure!(since.elapsed() >= QUIET, "the branches have just moved");
        ledger.check(world)?;
        is_told(world)?;
        Ok(Some(()))
    })
}

/// Whether the manager says of everybody that all is well.
fn is_told(world: &World) -> anyhow::Result<()> {
    let all = [("trishankuheaven", CONTROLLERS), ("trishankuheaven", SCHEDULERS), ("automatedmerge", MERGE)];
    for (kind, name) in all {
        let object = world.cluster().object(&format!("{kind} {name}"))?;
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let ready = conditions.iter().find(|condition| condition["type"] == "Ready");
        let told = ready.map_or("nothing", |ready| ready["message"].as_str().unwrap_or_default());
        ensure!(ready.is_some_and(|ready| ready["status"] == "True"), "of {kind} {name} is told: {told}");
    }
    Ok(())
}

impl Ledger {
    /// Tries to make an object at each heaven.
    fn write(&mut self, world: &World) {
        match world.heavens() {
            Ok(heavens) => self.write_at(&heavens),
            Err(_) => self.refused += 1,
        }
    }

    fn write_at(&mut self, heavens: &[crate::world::Heaven<'_>]) {
        for heaven in heavens {
            let name = format!("chaos-{:05}", self.next);
            self.next += 1;
            match heaven.kubectl(&format!("create configmap {name} --request-timeout=10s")) {
                Ok(_) => drop(self.acknowledged.insert(name)),
                // It may be there all the same.
                Err(_) => self.refused += 1,
            }
        }
    }

    /// Whether all that was acknowledged is at every heaven.
    fn check(&self, world: &World) -> anyhow::Result<()> {
        for heaven in world.heavens()? {
            let found = heaven.kubectl("get configmaps --output=name")?;
            let found: BTreeSet<_> =
                found.lines().filter_map(|line| line.strip_prefix("configmap/")).map(ToOwned::to_owned).collect();
            let missing: Vec<_> = self.acknowledged.difference(&found).collect();
            ensure!(missing.is_empty(), "lost at {}: {missing:?}", heaven.name());
        }
        Ok(())
    }
}

/// Does something to a pod as soon as it can be done: one that has just replaced another has no address and no containers at first, and what is said of a
/// container that has just ended is not true any more.
fn retried<T>(what: &str, mut act: impl FnMut() -> anyhow::Result<T>) -> anyhow::Result<T> {
    until_within(what, PATIENCE, || act().map(Some))
}

fn pod(world: &World, label: &str) -> anyhow::Result<Value> {
    let pods = world.cluster().object(&format!("pods --selector={label}"))?;
    let pods = pods["items"].as_array().cloned().unwrap_or_default();
    let found = pods.into_iter().find(|pod| pod["metadata"]["deletionTimestamp"].is_null());
    found.with_context(|| format!("there is no pod {label}"))
}

fn container_id(pod: &Value, name: &str) -> anyhow::Result<String> {
    let of = |list: &str| pod["status"][list].as_array().cloned().unwrap_or_default();
    let found =
        [of("initContainerStatuses"), of("containerStatuses")].concat().into_iter().find(|found| found["name"] == name);
    let id = found.and_then(|found| Some(found["containerID"].as_str()?.strip_prefix("containerd://")?.to_owned()));
    id.with_context(|| format!("{} has no container {name}", pod["metadata"]["name"]))
}

fn address(pod: &Value) -> anyhow::Result<String> {
    Ok(pod["status"]["podIP"].as_str().context("the pod has no address")?.to_owned())
}

/// A little chance that can be repeated.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % sides as u64) as usize
    }

    fn shuffled(&mut self, length: usize) -> Vec<usize> {
        let mut order: Vec<_> = (0..length).collect();
        for at in (1..length).rev() {
            let other = self.roll(at + 1);
            order.swap(at, other);
        }
        order
    }
}
