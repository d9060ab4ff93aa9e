//! Faults, one after the other, each followed by the same check.
//!
//! In each round, a fault is injected while objects are created at both heavens. A heaven spared by the fault must accept them
//! meanwhile. A [cut](Fault::Cut) lasts until it has dropped a packet, a [full disk](full) until a write is refused. Then the
//! fault is removed. Soon after, both heavens must accept writes, all branches must be at one commit and stay there, every
//! acknowledged object must exist at both heavens, and the manager must report all objects as ready at a generation from after
//! the fault.
//!
//! `TRISHANKU_E2E_SOAK` runs it for this many minutes in a random order; `TRISHANKU_E2E_SEED` repeats an order.

mod full;
mod ledger;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, ensure};
use serde_json::Value;
use trishanku_e2e::nodes::Faults;
use trishanku_e2e::wait::until_within;

use self::ledger::Ledger;
use crate::headless::{CONTROLLERS, SCHEDULERS};
use crate::world::{Heaven, PATIENCE, World, container_id};

/// Limit for the recovery from a fault; most of it is kubelet's backoff before it restarts a container.
const AGREE_WITHIN: Duration = Duration::from_mins(3);
/// Branches that agree and do not move for this time are stable.
const QUIET: Duration = Duration::from_secs(3);
/// Limit for the next packet of any connection: the manager polls every gitcd about every ten seconds, and remotes are pulled
/// at least every fifteen.
const SPEAK_WITHIN: Duration = Duration::from_secs(30);
/// The merge of the heavens' branches.
const MERGE: &str = "sample-k8s-kcm";

/// The common deadline of all waits after a fault.
#[derive(Clone, Copy, Debug)]
struct Deadline(Instant);

impl Deadline {
    fn of(begun: Instant) -> Self {
        Self(begun + AGREE_WITHIN)
    }

    /// The remaining time.
    fn left(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }
}

/// A fault.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// A container is killed: the label of its pod, and its name.
    Killed(&'static str, &'static str),
    /// A pod with this label is deleted.
    Deleted(&'static str),
    /// Two parts cannot reach one another.
    Cut(Part, Part),
    /// A program of the node is down for a while.
    Away(&'static str),
    /// The file system with the volumes of all pods is full.
    DiskFull,
}

/// A part that the network can cut off.
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

/// Each kind of connection is cut at least once: heavens and the merge connect only to the Git host, the manager to
/// kube-apiserver and to every gitcd.
const FAULTS: [Fault; 15] = [
    Fault::Killed(OF_CONTROLLERS, "gitcd"),
    Fault::Killed(OF_SCHEDULERS, "kube-apiserver"),
    Fault::Killed(OF_MERGE, "gitcd"),
    Fault::Killed(OF_HOST, "gitcd"),
    Fault::Deleted(OF_MERGE),
    Fault::Cut(Part::Pod(OF_SCHEDULERS), Part::Pod(OF_HOST)),
    Fault::Cut(Part::Pod(OF_CONTROLLERS), Part::Pod(OF_HOST)),
    Fault::Cut(Part::Pod(OF_MERGE), Part::Pod(OF_HOST)),
    Fault::Cut(Part::Manager, Part::Apiserver),
    Fault::Cut(Part::Manager, Part::Pod(OF_CONTROLLERS)),
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

impl Fault {
    /// Whether a heaven works as if there were no fault.
    fn spares(self, heaven: &str) -> bool {
        match self {
            Self::Killed(OF_CONTROLLERS, _) => heaven != CONTROLLERS,
            Self::Killed(OF_SCHEDULERS, _) => heaven != SCHEDULERS,
            // All pods share the disk.
            Self::DiskFull => false,
            _ => true,
        }
    }

    /// Whether the heavens cannot exchange changes during the fault.
    fn parts_heavens(self) -> bool {
        matches!(self, Self::Cut(_, Part::Pod(OF_HOST)))
    }

    /// The current victim: the ID of a container, or the name of a pod.
    fn victim(self, world: &World) -> anyhow::Result<Option<String>> {
        match self {
            Self::Killed(label, container) => container_id(&pod(world, label)?, container).map(Some),
            Self::Deleted(label) => {
                Ok(Some(pod(world, label)?["metadata"]["name"].as_str().context("the pod has no name")?.to_owned()))
            }
            Self::Cut(..) | Self::Away(_) | Self::DiskFull => Ok(None),
        }
    }
}

pub(crate) fn whatever_is_killed_or_cut_off_all_agree_soon_after_and_nothing_acknowledged_is_lost(
    world: &Arc<World>,
) -> anyhow::Result<()> {
    let faults = world.cluster().faults();
    let mut all = FAULTS.to_vec();
    if !faults.has_own_disk() {
        eprintln!("SKIPPED: a full disk; the node shares the machine's disk");
        all.retain(|fault| !matches!(fault, Fault::DiskFull));
    }
    let since_1970 = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_secs());
    let seed = std::env::var("TRISHANKU_E2E_SEED").ok().map(|seed| seed.parse::<u64>()).transpose()?;
    let soak = std::env::var("TRISHANKU_E2E_SOAK").ok().map(|minutes| minutes.parse::<u64>()).transpose()?;
    // Without a soak, the order is the same in every run.
    let seed = seed.unwrap_or_else(|| if soak.is_some() { since_1970() } else { 1 });
    let until = Instant::now() + Duration::from_mins(soak.unwrap_or(0));
    eprintln!("TRISHANKU_E2E_SEED={seed}");
    let mut dice = Dice(seed.max(1));
    let mut ledger = Ledger::default();
    let mut slowest = Duration::ZERO;
    agree(world, &ledger, Deadline::of(Instant::now()))?;
    let mut order: Vec<usize> = Vec::new();
    let mut rounds = 0;
    // Without `TRISHANKU_E2E_SOAK`, each fault comes once.
    while rounds < all.len() || Instant::now() < until {
        // Each fault comes once before any is repeated.
        if order.is_empty() {
            order = dice.shuffled(all.len());
        }
        let fault = all[order.pop().unwrap_or_default()];
        let took = round(world, faults, fault, &mut ledger)
            .with_context(|| format!("{fault:?}, round {rounds} of seed {seed}"))?;
        eprintln!("{fault:?}: agreed after {took:?}");
        slowest = slowest.max(took);
        rounds += 1;
    }
    let (acknowledged, refused) = ledger.figures();
    eprintln!(
        "{rounds} faults, {acknowledged} objects acknowledged and {refused} refused; the slowest recovery took {slowest:?}"
    );
    Ok(())
}

fn round(world: &World, faults: &dyn Faults, fault: Fault, ledger: &mut Ledger) -> anyhow::Result<Duration> {
    // Both heavens work before the fault.
    ledger.write_everywhere(world, Deadline::of(Instant::now()))?;
    let heavens = [(CONTROLLERS, OF_CONTROLLERS), (SCHEDULERS, OF_SCHEDULERS)].map(|(name, label)| {
        let address = retried("a pod with an address", || address(&pod(world, label)?))?;
        // Directly, as access through the host cluster would suffer from its faults.
        world.heaven_at("default", name, "sample-k8s-admin", address)
    });
    let [controllers, schedulers] = heavens;
    let heavens = [&controllers?, &schedulers?];
    let spared: Vec<_> = heavens.into_iter().filter(|heaven| fault.spares(heaven.name())).collect();
    let mut victim = None;
    match fault {
        Fault::Killed(..) => {
            victim = retried("a container to kill", || {
                let id = fault.victim(world)?;
                faults.kill_container(id.as_deref().unwrap_or_default())?;
                Ok(id)
            })?;
        }
        Fault::Deleted(_) => {
            victim = retried("a pod to delete", || {
                let name = fault.victim(world)?;
                world.kubectl(&format!("delete pod {} --wait=false", name.as_deref().unwrap_or_default()))?;
                Ok(name)
            })?;
        }
        Fault::Cut(one, other) => {
            let (one, other) = (one.address(world, faults)?, other.address(world, faults)?);
            faults.cut(&one, &other)?;
            let seen = is_cut(faults, (&one, &other), fault, heavens, ledger);
            seen.and(faults.mend(&one, &other))?;
        }
        Fault::Away(name) => {
            faults.kill_program(name)?;
            let seen = ledger.write_at(&spared);
            seen.and(faults.start_program(name))?;
        }
        Fault::DiskFull => {
            // Each heaven knows its own object.
            let known = ledger.write_at(&heavens)?;
            faults.fill_disk()?;
            let [reader, writer] = heavens;
            let seen = full::refuses(writer, &known[1].name).and_then(|()| full::reads(reader, &known[0].name));
            seen.and(faults.free_disk())?;
        }
    }
    let begun = Instant::now();
    let deadline = Deadline::of(begun);
    if matches!(fault, Fault::DiskFull) {
        full::recovers(heavens[1], deadline)?;
    }
    // A killed heaven is down now, but the other must work.
    ledger.write_at(&spared)?;
    if victim.is_some() {
        let replaced = || Ok((fault.victim(world)? != victim).then_some(()));
        until_within("its replacement", deadline.left(), replaced)?;
    }
    ledger.write_everywhere(world, deadline)?;
    agree(world, ledger, deadline)?;
    let took = begun.elapsed();
    // The last poll of a wait may start in time and end after it.
    ensure!(took <= AGREE_WITHIN + QUIET, "the branches agree, but only {took:?} after the fault was removed");
    Ok(took)
}

/// Waits until a cut has dropped a packet, while both heavens keep working separately.
fn is_cut(
    faults: &dyn Faults,
    (one, other): (&str, &str),
    fault: Fault,
    heavens: [&Heaven<'_>; 2],
    ledger: &mut Ledger,
) -> anyhow::Result<()> {
    let made = ledger.write_at(&heavens)?;
    until_within("the cut to drop a packet", SPEAK_WITHIN, || Ok((faults.dropped(one, other)? > 0).then_some(())))?;
    if !fault.parts_heavens() {
        return Ok(());
    }
    for made in &made {
        for heaven in heavens.iter().filter(|heaven| heaven.name() != made.heaven) {
            let found = heaven.kubectl(&format!("get configmap {} --ignore-not-found --output=name", made.name))?;
            ensure!(
                found.is_empty(),
                "an object of {} reached {} despite the cut: {found}",
                made.heaven,
                heaven.name()
            );
        }
    }
    Ok(())
}

/// Waits until everything has recovered by the deadline, and stays so.
fn agree(world: &World, ledger: &Ledger, deadline: Deadline) -> anyhow::Result<()> {
    let changed =
        until_within("all manifests to be changed", deadline.left(), || change(world, ledger.number()).map(Some))?;
    let (mut before, mut since) = (String::new(), Instant::now());
    until_within("all branches to agree", deadline.left() + QUIET, || {
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
        for (object, generation) in &changed {
            is_ready(world, object, *generation)?;
        }
        Ok(Some(()))
    })
}

/// Changes a field in each manifest that only matters while it is suspended, and returns the new generations: the manager's
/// earlier conditions are of older ones.
fn change(world: &World, number: usize) -> anyhow::Result<Vec<(String, i64)>> {
    let all = [("trishankuheaven", CONTROLLERS), ("trishankuheaven", SCHEDULERS), ("automatedmerge", MERGE)];
    let changed = all.map(|(kind, name)| {
        let patch = format!(r#"--patch={{"spec":{{"suspendReason":"none-{number}"}}}}"#);
        let words = format!("patch {kind} {name} --type=merge --output=json --request-timeout=10s {patch}");
        let object: Value = serde_json::from_str(&world.kubectl(&words)?)?;
        let generation = object["metadata"]["generation"].as_i64().context("the object has no generation")?;
        Ok((format!("{kind} {name}"), generation))
    });
    changed.into_iter().collect()
}

/// Whether the manager reports an object as ready, at this generation or a later one.
fn is_ready(world: &World, object: &str, generation: i64) -> anyhow::Result<()> {
    let found = world.cluster().object(object)?;
    let conditions = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let ready = conditions.iter().find(|condition| condition["type"] == "Ready");
    let ready = ready.with_context(|| format!("{object} has no condition Ready"))?;
    let of = ready["observedGeneration"].as_i64().unwrap_or_default();
    ensure!(of >= generation, "{object} is reported at generation {of}, but it is at {generation}");
    ensure!(ready["status"] == "True", "{object} is not ready: {}", ready["message"]);
    Ok(())
}

/// Retries an action on a pod: a replacement has no address and no containers at first, and a container's status may be
/// outdated.
fn retried<T>(what: &str, mut act: impl FnMut() -> anyhow::Result<T>) -> anyhow::Result<T> {
    until_within(what, PATIENCE, || act().map(Some))
}

fn pod(world: &World, label: &str) -> anyhow::Result<Value> {
    let pods = world.cluster().object(&format!("pods --selector={label}"))?;
    let pods = pods["items"].as_array().cloned().unwrap_or_default();
    let found = pods.into_iter().find(|pod| pod["metadata"]["deletionTimestamp"].is_null());
    found.with_context(|| format!("no pod with label {label}"))
}

fn address(pod: &Value) -> anyhow::Result<String> {
    Ok(pod["status"]["podIP"].as_str().context("the pod has no address")?.to_owned())
}

/// A repeatable source of randomness.
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
