//! Runs the controllers, the runnables and the server of a manager.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, join_all};
use kube::Client;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};

use super::{Manager, RunError, Task, connected};
use crate::cache::Caches;
use crate::clock;
use crate::controller::RunContext;
#[cfg(feature = "webhook")]
use crate::controller::Runnable;
use crate::lease::{Election, Role};
#[cfg(feature = "serve")]
use crate::serve::Serving;

/// How long a new leader waits for failed watches to catch up.
const CATCHING_UP: Duration = Duration::from_secs(10);

/// A cluster that controllers work in.
struct Site<'a> {
    caches: &'a Arc<Caches>,
    /// Needs the lease.
    client: Client,
    role: watch::Receiver<Role>,
}

impl Manager {
    /// Starts to answer requests.
    #[cfg(feature = "serve")]
    pub(super) fn serving(mut self, client: &Client) -> (Option<Serving>, Self) {
        let pages = self.debug_pages();
        (self.server.take().map(|server| server.start(&self.health, &self.metrics, client, pages)), self)
    }

    /// Returns the pages for the debug address.
    #[cfg(feature = "serve")]
    fn debug_pages(&self) -> axum::Router {
        #[cfg(feature = "telemetry")]
        if let Some(telemetry) = &self.telemetry {
            return crate::serve::log_pages(telemetry);
        }
        axum::Router::new()
    }

    pub(super) async fn work(mut self, open: Client, stop: impl Future<Output = ()>) -> Result<(), RunError> {
        #[cfg(feature = "webhook")]
        let hooks = self.serve_webhooks(&open);
        let mut names = HashSet::new();
        if let Some(twice) = self.controllers.iter().find(|task| !names.insert(task.runs.name())) {
            return Err(RunError::SameName(twice.runs.name().to_owned()));
        }
        let mut tasks = JoinSet::new();
        let others = self.clusters.iter().map(|cluster| (cluster.caches.clone(), cluster.open.clone()));
        for (caches, client) in others.chain([(self.caches.clone(), open.clone())]) {
            let limit = self.answer_limit;
            tasks.spawn(async move {
                caches.fill_within(&client, limit).await;
                "a watch"
            });
        }
        let (mut stop, start) = (pin!(stop), self.start.take());
        let mut late = pin!(self.sync());
        tokio::select! {
            () = synced(&self.caches) => {}
            error = &mut late => return Err(error),
            () = &mut stop => return Ok(()),
            ended = tasks.join_next(), if !tasks.is_empty() => return Err(defect(ended)),
        }
        if let Some(start) = start {
            start.ready();
        }
        // From here on, only caches, the election and reviews of tokens send requests without the lease.
        let (role, election) = self.election(open)?;
        let (releasing, released) = watch::channel(false);
        let mut electing = JoinSet::new();
        election.map(|election| electing.spawn(election.run(wait_for_true(released))));
        let mut informing = JoinSet::new();
        let sites = self.sites(&role, &mut informing)?;
        let (stopping, stopped) = watch::channel(false);
        let mut working = self.start_work(&sites, &stopped);
        let outcome = tokio::select! {
            () = &mut stop => Ok(()),
            error = &mut late => Err(error),
            ended = tasks.join_next(), if !tasks.is_empty() => Err(defect(ended)),
            Some(ended) = working.join_next() => Err(defect(Some(ended.map(|()| "a controller")))),
            Some(ended) = electing.join_next() => Err(defect(Some(ended.map(|()| "the election")))),
        };
        let _nobody_runs = stopping.send(true);
        while working.join_next().await.is_some() {}
        let _no_lease = releasing.send(true);
        while let Some(ended) = electing.join_next().await {
            ended.map_err(RunError::Task)?;
        }
        #[cfg(feature = "webhook")]
        join_all(hooks.into_iter().map(crate::webhook::Serving::end)).await;
        outcome
    }

    /// Serves webhooks, and adds the tasks that register them.
    #[cfg(feature = "webhook")]
    fn serve_webhooks(&mut self, client: &Client) -> Vec<crate::webhook::Serving> {
        let mut serving = Vec::new();
        for webhooks in std::mem::take(&mut self.webhooks) {
            let name = webhooks.task();
            let (served, registrar) = webhooks.start(client, &self.health);
            let register = move |client, term| registrar.clone().register(client, term);
            self.controllers.push(Task { runs: Arc::new(Runnable::new(name, register)), cluster: None });
            serving.push(served);
        }
        serving
    }

    /// Returns the clusters, the manager's first, and adds the tasks that pass on the role: a cluster that does not catch up must not
    /// delay the others.
    fn sites(&self, role: &watch::Receiver<Role>, informing: &mut JoinSet<()>) -> Result<Vec<Site<'_>>, RunError> {
        let own = connected(self.config.clone(), &self.fence, &self.metrics)?;
        let others = self.clusters.iter().map(|cluster| (&cluster.caches, cluster.client()));
        let site = |(caches, client): (_, Client)| {
            let (roles, informed) = watch::channel(Role::Standby);
            informing.spawn(inform(Arc::clone(caches), role.clone(), roles));
            Site { caches, client, role: informed }
        };
        Ok([(&self.caches, own)].into_iter().chain(others).map(site).collect())
    }

    /// Starts the controllers: each once its caches are complete.
    fn start_work(&self, sites: &[Site<'_>], stop: &watch::Receiver<bool>) -> JoinSet<()> {
        let mut working = JoinSet::new();
        for site in sites {
            let here = |task: &&Task| {
                let caches = task.cluster.as_ref().map_or(&self.caches, |cluster| &cluster.caches);
                Arc::ptr_eq(caches, site.caches)
            };
            for Task { runs, .. } in self.controllers.iter().filter(here) {
                let (client, role, stop, grace) = (site.client.clone(), site.role.clone(), stop.clone(), self.grace);
                let mut run_context = RunContext { client, role, stop, grace, pulse: self.health.pulse(runs.name()) };
                let (runs, all, awaited) = (runs.clone(), synced(site.caches), runs.synced());
                working.spawn(async move {
                    if run_context.until(all.then(|()| awaited)).await {
                        runs.run(run_context).await;
                    }
                });
            }
        }
        working
    }

    /// Returns each kind, with the cluster if that is not the manager's, and a future that completes when its cache is synced.
    fn kinds(&self) -> Vec<(String, BoxFuture<'static, ()>)> {
        let elsewhere = self.clusters.iter().flat_map(|cluster| {
            cluster.caches.synced().into_iter().map(|(kind, synced)| (format!("{}/{kind}", cluster.name), synced))
        });
        elsewhere.chain(self.caches.synced()).collect()
    }

    /// Reports which caches are complete. Ends only if some are not in time.
    async fn sync(&self) -> RunError {
        let awaited = self.kinds().into_iter().map(|(kind, synced)| {
            let awaited = self.health.wait_for(format!("cache/{kind}"));
            synced.map(|()| awaited.ready())
        });
        tokio::select! {
            _ = join_all(awaited) => std::future::pending().await,
            limit = sleep(self.sync_limit) => self.not_synced(limit),
        }
    }

    fn not_synced(&self, limit: Duration) -> RunError {
        let missing =
            self.kinds().into_iter().filter_map(|(kind, synced)| synced.now_or_never().is_none().then_some(kind));
        let mut kinds: Vec<_> = missing.collect();
        kinds.sort();
        RunError::NotSynced { kinds, limit }
    }

    fn election(&self, client: Client) -> Result<(watch::Receiver<Role>, Option<Election>), RunError> {
        let Some(settings) = self.lease.clone() else {
            self.fence.open_for_ever();
            return Ok((watch::channel(Role::Leading { term: 1 }).1, None));
        };
        let election = Election::new(client, settings, clock::boottime())?.with_fence(self.fence.clone());
        let election = election.counted(&self.metrics);
        Ok((election.role(), Some(election)))
    }
}

/// Completes when all of these caches are complete.
fn synced(caches: &Caches) -> impl Future<Output = ()> + Send + use<> {
    join_all(caches.synced().into_iter().map(|(_, synced)| synced)).map(drop)
}

/// Forwards the role to the controllers of a cluster. A lead waits for failed watches to catch up, so that no reconcile sees the state
/// from before the gap.
async fn inform(caches: Arc<Caches>, mut role: watch::Receiver<Role>, informed: watch::Sender<Role>) {
    loop {
        let now = *role.borrow_and_update();
        if let Role::Leading { .. } = now {
            tokio::select! {
                // A list that is never answered must not block the other kinds.
                _ = tokio::time::timeout(CATCHING_UP, caches.catch_up()) => {}
                Ok(()) = role.changed() => continue,
            }
        }
        informed.send_replace(now);
        if role.changed().await.is_err() {
            // Without an election, the role does not change.
            return informed.closed().await;
        }
    }
}

/// Sleeps, and returns how long; without a limit, for ever.
async fn sleep(limit: Option<Duration>) -> Duration {
    match limit {
        Some(limit) => {
            tokio::time::sleep(limit).await;
            limit
        }
        None => std::future::pending().await,
    }
}

async fn wait_for_true(mut receiver: watch::Receiver<bool>) {
    // A dropped sender counts as a stop.
    let _gone = receiver.wait_for(|value| *value).await;
}

fn defect(ended: Option<Result<&'static str, JoinError>>) -> RunError {
    match ended {
        Some(Err(error)) => RunError::Task(error),
        Some(Ok(what)) => RunError::Ended(what),
        None => RunError::Ended("everything"),
    }
}
