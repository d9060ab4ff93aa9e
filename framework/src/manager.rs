//! Runs controllers: one program, one client, one lease.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use kube::{Client, Config};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};

use crate::cache::{ANSWER_LIMIT, Cache, Caches, Scope};
use crate::client::connect;
use crate::controller::{Controller, Driver, Orders, Reconciler, Runs};
use crate::health::{Awaited, Health};
use crate::lease::{self, Election, Fence, Role};
use crate::metrics::Metrics;
use crate::serve::Server;
use crate::telemetry::Telemetry;
use crate::{Kind, Known, Object, clock};

/// How long work may wait for watches that catch up.
const CATCHING_UP: Duration = Duration::from_secs(10);

/// Runs controllers until it is told to stop.
///
/// - Every cache has everything before the first reconcile. The lease is taken after that: whoever has it works at once.
/// - Without the lease nothing is sent. If it is lost, what is being reconciled is cancelled; the caches stay warm, and with the next term
///   everything is reconciled.
/// - When it is to stop, what is being reconciled may end, then the lease is given back.
///
/// ```no_run
/// use std::sync::Arc;
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use trishanku_framework::{Context, Controller, Manager, Next, Reconciler, lease};
///
/// struct Tank;
///
/// impl Reconciler for Tank {
///     type Object = ConfigMap;
///     type Error = kube::Error;
///
///     async fn reconcile(&self, tank: Arc<ConfigMap>, context: Context) -> Result<Next, kube::Error> {
///         println!("{} has {} entries", context.key, tank.data.as_ref().map_or(0, |data| data.len()));
///         Ok(Next::Change)
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let stop = async { drop(tokio::signal::ctrl_c().await) };
/// Manager::new(kube::Config::infer().await?)
///     .leader_election(lease::Settings::new("default", "tank"))
///     .controller(Controller::new("tank", Tank).selecting("kind=tank"))
///     .run(stop)
///     .await?;
/// # Ok(())
/// # }
/// ```
pub struct Manager {
    config: Config,
    caches: Arc<Caches>,
    controllers: Vec<Arc<dyn Runs>>,
    lease: Option<lease::Settings>,
    grace: Duration,
    answer_limit: Duration,
    health: Health,
    metrics: Metrics,
    telemetry: Option<Telemetry>,
    server: Option<Server>,
    /// Until it runs: nobody may take it for ready before.
    start: Option<Awaited>,
}

/// Why controllers do not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// No client can be made of the configuration.
    #[error("cannot create a client")]
    Client(#[source] Box<kube::Error>),
    /// The lease's times make no sense.
    #[error(transparent)]
    Lease(#[from] lease::Unsafe),
    /// Figures, probes and logs of the two would be one.
    #[error("two controllers have the name {0:?}; give each its own")]
    SameName(String),
    /// A part of the program has a defect; the process should end, and be started again.
    #[error("an internal task terminated unexpectedly")]
    Task(#[source] JoinError),
    /// As [`Task`](Self::Task), without a panic.
    #[error("{0} terminated unexpectedly")]
    Ended(&'static str),
}

impl Manager {
    /// Watches all namespaces.
    pub fn new(config: Config) -> Self {
        Self::with_scope(config, Scope::All)
    }

    /// Watches what `scope` says.
    pub fn with_scope(config: Config, scope: Scope) -> Self {
        let (health, metrics) = (Health::default(), Metrics::default());
        Self {
            config,
            start: Some(health.wait_for("start")),
            caches: Arc::new(Caches::new(scope).counted(&metrics)),
            controllers: Vec::new(),
            lease: None,
            grace: Duration::from_secs(20),
            answer_limit: ANSWER_LIMIT,
            health,
            metrics,
            telemetry: None,
            server: None,
        }
    }

    /// Works only while it holds this lease.
    #[must_use]
    pub fn leader_election(mut self, settings: lease::Settings) -> Self {
        self.lease = Some(settings);
        self
    }

    /// How long reconciles may take to end after [`run`](Self::run) is to stop; then they are cancelled. Unless told otherwise, 20 seconds: less than
    /// the 30 that Kubernetes gives a pod.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// How long the apiserver may send nothing when it is asked for a list, or for a watch to begin; then that has failed, and is tried again. Unless told otherwise, 65
    /// seconds: kube-apiserver itself ends requests after 60 (`--request-timeout`). Zero is for ever.
    ///
    /// Of other requests, those of a reconcile end with [its time](Controller::time_limit).
    #[must_use]
    pub fn answer_limit(mut self, limit: Duration) -> Self {
        self.answer_limit = limit;
        self
    }

    /// Runs this controller too.
    #[must_use]
    pub fn controller<R: Reconciler>(mut self, controller: Controller<R>) -> Self {
        self.controllers.push(Driver::new(controller, &self.caches, &self.metrics));
        self
    }

    /// Answers probes and scrapes while it runs, and until it has drained.
    #[must_use]
    pub fn serve(mut self, server: Server) -> Self {
        self.server = Some(server);
        self
    }

    /// Sends the last traces when it has drained, and lets [`serve`](Self::serve) change what is logged.
    #[must_use]
    pub fn telemetry(mut self, telemetry: &Telemetry) -> Self {
        self.telemetry = Some(telemetry.clone());
        self
    }

    /// The cache of a kind, for reconcilers that read it: the same one that controllers use that own or watch the kind.
    pub fn cache<K: Known>(&self) -> Arc<Cache<K>> {
        self.caches.of(None)
    }

    /// The cache of the objects of a kind with these labels: the same one that a controller uses that is [selecting](Controller::selecting) them.
    pub fn cache_selecting<K: Known>(&self, labels: &str) -> Arc<Cache<K>> {
        self.caches.of(Some(labels))
    }

    /// As [`cache`](Self::cache), or with `labels` as [`cache_selecting`](Self::cache_selecting), of any kind.
    pub fn cache_of<K: Object>(&self, kind: &Kind<K>, labels: Option<&str>) -> Arc<Cache<K>> {
        self.caches.of_kind(kind, labels)
    }

    /// Whether it is ready and alive, for probes. Others may announce what they need to be ready.
    pub fn health(&self) -> Health {
        self.health.clone()
    }

    /// The controllers' figures, for a page that is scraped.
    pub fn metrics(&self) -> Metrics {
        self.metrics.clone()
    }

    /// Runs until `stop` is ready, and everything has ended after that.
    ///
    /// # Errors
    /// [`RunError`]. A cluster that cannot be reached is none: that is tried until it can.
    pub async fn run(mut self, stop: impl Future<Output = ()>) -> Result<(), RunError> {
        let telemetry = self.telemetry.clone();
        let serving = self.server.take().map(|server| server.start(&self.health, &self.metrics, telemetry.as_ref()));
        let outcome = self.work(stop).await;
        if let Some(telemetry) = telemetry {
            telemetry.flush().await;
        }
        if let Some(serving) = serving {
            serving.end().await;
        }
        outcome
    }

    async fn work(mut self, stop: impl Future<Output = ()>) -> Result<(), RunError> {
        let mut names = HashSet::new();
        if let Some(twice) = self.controllers.iter().find(|controller| !names.insert(controller.name())) {
            return Err(RunError::SameName(twice.name().to_owned()));
        }
        let open = self.client(&Fence::open())?;
        let (stopping, stopped) = watch::channel(false);
        let mut tasks = JoinSet::new();
        for feed in self.caches.feeds_within(&open, self.answer_limit) {
            tasks.spawn(async {
                feed.await;
                "a watch"
            });
        }
        let mut stop = pin!(stop);
        tokio::select! {
            () = self.synced() => {}
            () = &mut stop => return Ok(()),
            ended = tasks.join_next(), if !tasks.is_empty() => return Err(defect(ended)),
        }
        if let Some(start) = self.start.take() {
            start.ready();
        }
        // Nothing else may be sent by who is not elected.
        let (fence, role, election) = self.election(open)?;
        let (releasing, released) = watch::channel(false);
        let mut electing = JoinSet::new();
        election.map(|election| electing.spawn(election.run(told(released))));
        let client = self.client(&fence)?;
        let (roles, informed) = watch::channel(Role::Standby);
        let mut informing = JoinSet::new();
        informing.spawn(inform(self.caches.clone(), role, roles));
        let mut working = JoinSet::new();
        for controller in &self.controllers {
            let (client, role, stop) = (client.clone(), informed.clone(), stopped.clone());
            let pulse = self.health.pulse(controller.name());
            working.spawn(controller.clone().run(Orders { client, role, stop, grace: self.grace, pulse }));
        }
        let outcome = tokio::select! {
            () = &mut stop => Ok(()),
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
        outcome
    }

    fn client(&self, fence: &Fence) -> Result<Client, RunError> {
        connect(self.config.clone(), fence, Some(&self.metrics)).map_err(|error| RunError::Client(Box::new(error)))
    }

    async fn synced(&self) {
        let awaited: Vec<_> = self
            .caches
            .synced()
            .into_iter()
            .map(|(kind, synced)| (self.health.wait_for(format!("cache/{kind}")), synced))
            .collect();
        let one = |(awaited, synced): (Awaited, futures::future::BoxFuture<'static, ()>)| async move {
            synced.await;
            awaited.ready();
        };
        futures::future::join_all(awaited.into_iter().map(one)).await;
    }

    fn election(&self, client: Client) -> Result<(Fence, watch::Receiver<Role>, Option<Election>), RunError> {
        let Some(settings) = self.lease.clone() else {
            return Ok((Fence::open(), watch::channel(Role::Leading { term: 1 }).1, None));
        };
        let election = Election::new(client, settings, clock::boottime())?.counted(&self.metrics);
        Ok((election.fence(), election.role(), Some(election)))
    }
}

impl std::fmt::Debug for Manager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let controllers: Vec<_> = self.controllers.iter().map(|controller| controller.name()).collect();
        f.debug_struct("Manager").field("controllers", &controllers).field("lease", &self.lease).finish_non_exhaustive()
    }
}

/// Tells controllers which role there is: of a lead when watches that had failed have caught up, so that nothing is reconciled as it was before that.
async fn inform(caches: Arc<Caches>, mut role: watch::Receiver<Role>, informed: watch::Sender<Role>) {
    loop {
        let now = *role.borrow_and_update();
        if let Role::Leading { .. } = now {
            tokio::select! {
                // A list that is never answered does not keep what else there is from being worked with.
                _ = tokio::time::timeout(CATCHING_UP, caches.catch_up()) => {}
                Ok(()) = role.changed() => continue,
            }
        }
        informed.send_replace(now);
        if role.changed().await.is_err() {
            // Nobody elects: it stays so.
            return informed.closed().await;
        }
    }
}

async fn told(mut receiver: watch::Receiver<bool>) {
    // Who drops the sender is gone, and cannot want anything else.
    let _gone = receiver.wait_for(|told| *told).await;
}

fn defect(ended: Option<Result<&'static str, JoinError>>) -> RunError {
    match ended {
        Some(Err(error)) => RunError::Task(error),
        Some(Ok(what)) => RunError::Ended(what),
        None => RunError::Ended("everything"),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;
    use crate::{Context, Next};

    struct Nothing;

    impl Reconciler for Nothing {
        type Object = ConfigMap;
        type Error = kube::Error;

        async fn reconcile(&self, _: Arc<ConfigMap>, _: Context) -> Result<Next, kube::Error> {
            Ok(Next::Change)
        }
    }

    #[tokio::test]
    async fn two_controllers_of_one_name_are_refused() {
        let named = |name: &str| Controller::new(name, Nothing);
        let config = Config::new("http://127.0.0.1:1".parse().unwrap());
        let manager =
            Manager::new(config).controller(named("tank")).controller(named("pump")).controller(named("tank"));
        let error = manager.run(std::future::pending()).await.unwrap_err();
        assert_eq!(error.to_string(), "two controllers have the name \"tank\"; give each its own");
    }
}
