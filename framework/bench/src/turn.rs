//! One contestant on a cluster of its own: it makes all objects ready, is restarted, and resyncs.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client, CustomResourceExt, ResourceExt};
use serde::Serialize;
use trishanku_testkit::TestCluster;

use crate::contestant::{Contestant, Kind, Memory, Settings};
use crate::pair::Pair;
use crate::reconciles::Reconciles;
use crate::requests::{Counts, Requests};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_mins(20);
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Concurrent requests while objects are created for the contestant.
const MAKERS: usize = 16;

/// The work of each turn.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Plan {
    /// Number of objects.
    pub objects: usize,
    /// Objects at a time.
    pub concurrency: u16,
    /// How long a contestant idles before its memory is measured.
    #[serde(serialize_with = "seconds")]
    pub rest: Duration,
    /// Time between two resyncs; longer than a start and idling take.
    #[serde(serialize_with = "seconds")]
    pub resync: Duration,
}

fn seconds<S: serde::Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(duration.as_secs_f64())
}

/// The results of a turn.
#[derive(Clone, Debug, Serialize)]
pub struct Turn {
    /// From the first start until all objects are ready.
    pub making: Stretch,
    /// From the second start, with all objects ready, until all are reconciled.
    pub restart: Stretch,
    /// From the first to the last object of a resync.
    pub resync: Stretch,
    /// Peak memory until all objects were ready.
    pub making_peak: u64,
    /// Memory after all objects were ready, and an idle time.
    pub made: Memory,
    /// Peak memory after the second start.
    pub restart_peak: u64,
    /// Memory after the second start, and an idle time.
    pub restarted: Memory,
}

/// A part of a turn.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Stretch {
    /// How long it took.
    pub seconds: f64,
    /// CPU time of the contestant, including what follows directly.
    pub cpu_seconds: f64,
    /// Reconciles, including those that follow directly.
    pub reconciles: u64,
    /// Those that failed.
    pub failed: u64,
    /// Requests, including those that follow directly.
    pub requests: Counts,
}

/// Runs a turn.
///
/// # Errors
/// The contestant does not do what it should, there is no cluster, or something takes too long.
pub async fn take(kind: Kind, program: &Path, plan: Plan) -> Result<Turn> {
    // Keeps the whole log.
    let cluster = TestCluster::with_flags(["--audit-log-maxsize=100000".to_owned()]).await?;
    let turn = on(&cluster, kind, program, plan).await;
    // Dropping it waits for processes to exit.
    tokio::task::spawn_blocking(move || drop(cluster)).await?;
    turn
}

async fn on(cluster: &TestCluster, kind: Kind, program: &Path, plan: Plan) -> Result<Turn> {
    let folder = tempfile::tempdir()?;
    cluster.install(&Pair::crd()).await;
    let namespace = cluster.namespace("pairs").await;
    make(cluster.client(), &namespace, plan.objects).await?;
    let mut requests = Requests::of(&kind.user(), &cluster.folder().join("audit.log"));

    let settings = Settings { concurrency: plan.concurrency, resync: Duration::from_hours(10) };
    let mut contestant = Contestant::start(kind, program, cluster, folder.path(), settings)?;
    until("all objects to be ready", async || {
        contestant.check()?;
        requests.look()?;
        Ok((requests.ready() >= plan.objects).then_some(()))
    })
    .await?;
    let took = requests.last_ready(contestant.started()).context("no status was written")?;
    tokio::time::sleep(plan.rest).await;
    let (making_peak, made) = (contestant.peak_memory()?, contestant.memory()?);
    let making = Since::default().until_now(took, &mut contestant, &mut requests).await?;
    contestant.stop().await?;
    verify(cluster.client(), &namespace, plan.objects).await?;

    let before = requests.look()?;
    let settings = Settings { resync: plan.resync, ..settings };
    let mut contestant = Contestant::start(kind, program, cluster, folder.path(), settings)?;
    let objects = plan.objects as u64;
    until("all objects to be reconciled", async || Ok((contestant.reconciles().await?.done >= objects).then_some(())))
        .await?;
    let took = contestant.age();
    tokio::time::sleep(plan.rest).await;
    let (restart_peak, restarted) = (contestant.peak_memory()?, contestant.memory()?);
    let since = Since { requests: before, ..Since::default() };
    let restart = since.until_now(took, &mut contestant, &mut requests).await?;
    ensure!(contestant.age() < plan.resync * 9 / 10, "a start and idling take longer than the time between resyncs");

    let resync = resync(&mut contestant, &mut requests, objects).await?;
    contestant.stop().await?;
    verify(cluster.client(), &namespace, plan.objects).await?;
    Ok(Turn { making, restart, resync, making_peak, made, restart_peak, restarted })
}

/// The counts at the start of a part.
#[derive(Clone, Copy, Default)]
struct Since {
    cpu: Duration,
    reconciles: Reconciles,
    requests: Counts,
}

impl Since {
    async fn until_now(self, took: Duration, contestant: &mut Contestant, requests: &mut Requests) -> Result<Stretch> {
        let now = contestant.reconciles().await?;
        Ok(Stretch {
            seconds: took.as_secs_f64(),
            cpu_seconds: contestant.cpu()?.saturating_sub(self.cpu).as_secs_f64(),
            reconciles: now.done - self.reconciles.done,
            failed: now.failed - self.reconciles.failed,
            requests: requests.look()?.since(&self.requests),
        })
    }
}

/// Measures the next resync.
async fn resync(contestant: &mut Contestant, requests: &mut Requests, objects: u64) -> Result<Stretch> {
    let (mut cpu, reconciles) = (contestant.cpu()?, contestant.reconciles().await?);
    let mut began = Instant::now();
    until("a resync to begin", async || {
        let (look, used) = (Instant::now(), contestant.cpu()?);
        let now = contestant.reconciles().await?;
        if now.done > reconciles.done {
            return Ok(Some(()));
        }
        // The resync begins after this, at the earliest.
        (began, cpu) = (look, used);
        Ok(None)
    })
    .await?;
    let since = Since { cpu, reconciles, requests: requests.look()? };
    until("the resync to end", async || {
        Ok((contestant.reconciles().await?.done >= reconciles.done + objects).then_some(()))
    })
    .await?;
    let took = began.elapsed();
    // A write that should not happen would be in the log by then.
    tokio::time::sleep(Duration::from_secs(1)).await;
    since.until_now(took, contestant, requests).await
}

async fn until(what: &str, mut look: impl AsyncFnMut() -> Result<Option<()>>) -> Result<()> {
    let start = Instant::now();
    while look().await?.is_none() {
        ensure!(start.elapsed() < PATIENCE, "waited {PATIENCE:?} for {what}");
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(())
}

async fn make(client: Client, namespace: &str, objects: usize) -> Result<()> {
    let api: Api<Pair> = Api::namespaced(client, namespace);
    let api = &api;
    let made = stream::iter(0..objects).map(|number| async move {
        let pair = Pair::numbered(number);
        api.create(&PostParams::default(), &pair).await.map(drop)
    });
    Ok(made.buffer_unordered(MAKERS).try_collect::<()>().await?)
}

/// Checks that all objects are in the desired state.
async fn verify(client: Client, namespace: &str, objects: usize) -> Result<()> {
    let pairs: Vec<Pair> = all(&Api::namespaced(client.clone(), namespace)).await?;
    let settings: Vec<ConfigMap> = all(&Api::namespaced(client.clone(), namespace)).await?;
    let keys: Vec<Secret> = all(&Api::namespaced(client, namespace)).await?;
    let counts = [pairs.len(), settings.len(), keys.len()];
    ensure!(counts == [objects; 3], "there are {counts:?} pairs, ConfigMaps and Secrets");
    // Lists are sorted by name, and all three have the same names.
    for ((pair, settings), key) in pairs.iter().zip(&settings).zip(&keys) {
        let owned = |metadata: &kube::api::ObjectMeta| {
            let mut owners = metadata.owner_references.iter().flatten();
            owners.any(|owner| Some(&owner.uid) == pair.metadata.uid.as_ref() && owner.controller == Some(true))
        };
        let good = pair.is_ready()
            && settings.data == pair.settings().data
            && key.data == pair.key().data
            && owned(&settings.metadata)
            && owned(&key.metadata);
        ensure!(good, "{} is not in the desired state: {pair:?} {settings:?} {key:?}", pair.name_any());
    }
    Ok(())
}

async fn all<K>(api: &Api<K>) -> Result<Vec<K>>
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let (mut found, mut page) = (Vec::new(), ListParams::default().limit(1_000));
    loop {
        let list = api.list(&page).await?;
        found.extend(list.items);
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(found),
        }
    }
}
