//! Runs controllers: one program, one client, one lease.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::core::PartialObjectMeta;
use kube::{Client, Config};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};

use crate::cache::{ANSWER_LIMIT, Cache, Caches, OnDemand, Scope, Selector};
use crate::client::connect;
use crate::cluster::Cluster;
use crate::controller::{Controller, Driver, Orders, Reconciler, Runnable, Runs, Term};
use crate::health::{Awaited, Health};
use crate::lease::{self, Election, Fence, Role};
use crate::metrics::Metrics;
#[cfg(feature = "serve")]
use crate::serve::{Server, Serving};
#[cfg(feature = "telemetry")]
use crate::telemetry::Telemetry;
#[cfg(feature = "webhook")]
use crate::webhook::Webhooks;
use crate::{Kind, Object, StaticKind, clock};

/// How long a new leader waits for failed watches to catch up.
const CATCHING_UP: Duration = Duration::from_secs(10);

/// A set of controllers with one client, one lease and shared caches.
///
/// - All caches are complete before the manager stands for election, so that a new leader starts to work immediately.
/// - Without the lease, reconcilers send nothing. When the lease is lost, running reconciles are cancelled and the caches
///   stay warm; the next term reconciles all objects.
/// - On stop, running reconciles may finish; then the lease is released.
///
/// ```no_run
/// use std::sync::Arc;
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use trishanku_framework::{Action, Context, Controller, Manager, Reconciler, lease};
///
/// struct Tank;
///
/// impl Reconciler for Tank {
///     type Object = ConfigMap;
///     type Error = kube::Error;
///
///     async fn reconcile(&self, tank: Arc<ConfigMap>, context: Context) -> Result<Action, kube::Error> {
///         println!("{} has {} entries", context.key, tank.data.as_ref().map_or(0, |data| data.len()));
///         Ok(Action::Change)
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
    clusters: Vec<Cluster>,
    controllers: Vec<Task>,
    /// Closed until the lease is held.
    fence: Fence,
    lease: Option<lease::Settings>,
    grace: Duration,
    answer_limit: Duration,
    sync_limit: Option<Duration>,
    health: Health,
    metrics: Metrics,
    #[cfg(feature = "telemetry")]
    telemetry: Option<Telemetry>,
    #[cfg(feature = "serve")]
    server: Option<Server>,
    #[cfg(feature = "webhook")]
    webhooks: Vec<Webhooks>,
    /// Blocks readiness until all caches are complete.
    start: Option<Awaited>,
}

/// A controller or a runnable, and the client of its cluster if that is not the manager's.
struct Task {
    runs: Arc<dyn Runs>,
    client: Option<Client>,
}

/// Why controllers do not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// No client can be created from the configuration.
    #[error("cannot create a client")]
    Client(#[source] Box<kube::Error>),
    /// The durations of the lease contradict each other.
    #[error(transparent)]
    Lease(#[from] lease::Unsafe),
    /// Metrics, probes and logs of the two would be indistinguishable.
    #[error("two controllers have the name {0:?}; give each its own")]
    SameName(String),
    /// Some caches were not complete in time.
    #[error(
        "after {limit:?}, these kinds could not be listed: {}; check that they exist, and that the service account may list and \
         watch them",
        kinds.join(", ")
    )]
    NotSynced {
        /// The kinds, sorted.
        kinds: Vec<String>,
        /// The limit.
        limit: Duration,
    },
    /// A task panicked, which is a defect; exit, and let the process be restarted.
    #[error("an internal task terminated unexpectedly")]
    Task(#[source] JoinError),
    /// As [`Task`](Self::Task), without a panic.
    #[error("{0} terminated unexpectedly")]
    Ended(&'static str),
}

impl Manager {
    /// Creates a manager that watches all namespaces.
    pub fn new(config: Config) -> Self {
        Self::with_scope(config, Scope::All)
    }

    /// Creates a manager that watches the namespaces of `scope`.
    pub fn with_scope(config: Config, scope: Scope) -> Self {
        let (health, metrics) = (Health::default(), Metrics::default());
        Self {
            config,
            start: Some(health.wait_for("start")),
            caches: Arc::new(Caches::new(scope).counted(&metrics)),
            clusters: Vec::new(),
            controllers: Vec::new(),
            fence: Fence::new(clock::boottime()),
            lease: None,
            grace: Duration::from_secs(20),
            answer_limit: ANSWER_LIMIT,
            sync_limit: None,
            health,
            metrics,
            #[cfg(feature = "telemetry")]
            telemetry: None,
            #[cfg(feature = "serve")]
            server: None,
            #[cfg(feature = "webhook")]
            webhooks: Vec::new(),
        }
    }

    /// Reconciles only while it holds this lease.
    #[must_use]
    pub fn leader_election(mut self, settings: lease::Settings) -> Self {
        self.lease = Some(settings);
        self
    }

    /// Sets how long running reconciles may take to finish after [`run`](Self::run) is stopped; then they are cancelled. By
    /// default 20 seconds: less than the 30 that Kubernetes gives a pod.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Sets how long the apiserver may be silent before a watch starts, or during a list; then the request fails, and is
    /// retried. By default 65 seconds, because kube-apiserver ends requests after 60 (`--request-timeout`). Zero means no
    /// limit.
    ///
    /// Requests of a reconcile end with [its time limit](Controller::time_limit) instead.
    #[must_use]
    pub fn answer_limit(mut self, limit: Duration) -> Self {
        self.answer_limit = limit;
        self
    }

    /// Sets how long the caches may take to be complete at the start; then [`run`](Self::run) fails with the kinds that are
    /// missing. By default, it waits for as long as it takes, and the manager is not [ready](Self::health) meanwhile.
    #[must_use]
    pub fn sync_limit(mut self, limit: Duration) -> Self {
        self.sync_limit = Some(limit);
        self
    }

    /// Runs a function beside the controllers: at the start of each term, with the client and the term. Its future is cancelled
    /// when the lease is lost; on stop, it may finish within the [`grace`](Self::grace). It may end before.
    ///
    /// ```
    /// # fn add(manager: trishanku_framework::Manager) -> trishanku_framework::Manager {
    /// manager.runnable("report", |client, term| async move {
    ///     let mut minutes = tokio::time::interval(std::time::Duration::from_mins(1));
    ///     while !term.is_over() {
    ///         minutes.tick().await;
    ///         match client.apiserver_version().await {
    ///             Ok(version) => println!("{}", version.git_version),
    ///             Err(error) => eprintln!("{error}"),
    ///         }
    ///     }
    /// })
    /// # }
    /// ```
    #[must_use]
    pub fn runnable<F>(
        mut self,
        name: impl Into<String>,
        begin: impl Fn(Client, Term) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.controllers.push(Task { runs: Arc::new(Runnable::new(name.into(), begin)), client: None });
        self
    }

    /// Adds a controller.
    #[must_use]
    pub fn controller<R: Reconciler>(mut self, controller: Controller<R>) -> Self {
        self.controllers.push(Task { runs: Driver::new(controller, &self.caches, &self.metrics), client: None });
        self
    }

    /// Adds another cluster, with caches and a client of its own. Its requests need the lease, too, which stays in the manager's
    /// cluster. `name` is for errors and probes. Call it inside the runtime.
    ///
    /// The manager works once the caches of all its clusters are complete: one that is away at the start delays the others, and is
    /// named by the readiness probe. One that goes away later does not.
    ///
    /// ```no_run
    /// use k8s_openapi::api::core::v1::Secret;
    /// use trishanku_framework::cache::Scope;
    /// use trishanku_framework::{Controller, Key, Manager, Reconciler};
    ///
    /// # async fn example(config: kube::Config, other: kube::Config, reconciler: impl Reconciler<Object = Secret>) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut manager = Manager::new(config);
    /// let plant = manager.cluster("plant", &other, Scope::All)?;
    /// let secrets = plant.cache::<Secret>();
    /// // Objects here are reconciled when a Secret there changes.
    /// let controller =
    ///     Controller::new("copies", reconciler).watches_cached(&secrets, |change| vec![Key::of(change.object())]);
    /// manager.controller(controller).run(std::future::pending()).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`RunError::Client`]: unusable certificates or credentials.
    pub fn cluster(&mut self, name: impl Into<String>, config: &Config, scope: Scope) -> Result<Cluster, RunError> {
        let caches = Arc::new(Caches::new(scope).counted(&self.metrics));
        let [client, open] = [&self.fence, &Fence::open()].map(|fence| connected(config.clone(), fence, &self.metrics));
        let cluster = Cluster { name: name.into().into(), client: client?, open: open?, caches };
        self.clusters.push(cluster.clone());
        Ok(cluster)
    }

    /// Adds a controller whose objects are in another cluster, as are those that it [owns](crate::Kinds::owned).
    #[must_use]
    pub fn controller_in<R: Reconciler>(mut self, cluster: &Cluster, controller: Controller<R>) -> Self {
        let runs = Driver::new(controller, &cluster.caches, &self.metrics);
        self.controllers.push(Task { runs, client: Some(cluster.client()) });
        self
    }

    /// Serves probes and metrics from start until the controllers have stopped.
    #[cfg(feature = "serve")]
    #[must_use]
    pub fn serve(mut self, server: Server) -> Self {
        self.server = Some(server);
        self
    }

    /// Serves [webhooks](crate::webhook) from start until the controllers have stopped, and registers them while it holds the lease.
    #[cfg(feature = "webhook")]
    #[must_use]
    pub fn webhooks(mut self, webhooks: Webhooks) -> Self {
        self.webhooks.push(webhooks);
        self
    }

    /// Flushes the last traces after the controllers have stopped, and lets [`serve`](Self::serve) change the log filter.
    #[cfg(feature = "telemetry")]
    #[must_use]
    pub fn telemetry(mut self, telemetry: &Telemetry) -> Self {
        self.telemetry = Some(telemetry.clone());
        self
    }

    /// Returns the cache of a kind, for reconcilers that read it. Controllers that own or watch the kind share it.
    pub fn cache<K: StaticKind>(&self) -> Arc<Cache<K>> {
        self.caches.of(None)
    }

    /// Returns the cache of a kind's objects with these labels, or [by fields](Selector). A controller that is [selecting](Controller::selecting) them
    /// shares it. An [`ApplySet`](crate::apply::ApplySet) with it needs the permission to `get` the kind: before it creates an
    /// object, it looks whether there is one without the labels.
    pub fn cache_selecting<K: StaticKind>(&self, selector: impl Into<Selector>) -> Arc<Cache<K>> {
        self.caches.selected(&Kind::known(), &selector.into())
    }

    /// Returns the cache of any kind, as [`cache`](Self::cache), or with `labels` as [`cache_selecting`](Self::cache_selecting).
    pub fn cache_of<K: Object>(&self, kind: &Kind<K>, labels: Option<&str>) -> Arc<Cache<K>> {
        self.caches.of_kind(kind, labels)
    }

    /// Returns the objects of a kind of which few are needed, and the others may be large: only their metadata is cached.
    pub fn cache_on_demand<K: StaticKind>(&self) -> OnDemand<K>
    where
        PartialObjectMeta<K>: StaticKind,
    {
        self.caches.on_demand()
    }

    /// Returns all caches. A reconciler can use them to add one while the manager runs, of a kind that an object names: it is
    /// filled at once, and complete when [`is_synced`](Cache::is_synced) says so; wait with [`Action::After`](crate::Action), because a
    /// kind that does not exist is awaited for ever. It stays until the manager ends.
    pub fn caches(&self) -> Arc<Caches> {
        self.caches.clone()
    }

    /// Returns the health, for probes. Register further conditions of readiness there.
    pub fn health(&self) -> Health {
        self.health.clone()
    }

    /// Returns the metrics, for a scrape endpoint.
    pub fn metrics(&self) -> Metrics {
        self.metrics.clone()
    }

    /// Runs until `stop` completes and the controllers have stopped.
    ///
    /// # Errors
    /// [`RunError`]. An unreachable cluster is not an error: the manager retries until it responds.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Result<(), RunError> {
        #[cfg(feature = "telemetry")]
        let telemetry = self.telemetry.clone();
        #[cfg(feature = "serve")]
        let (serving, this) = self.serving();
        #[cfg(not(feature = "serve"))]
        let this = self;
        let outcome = this.work(stop).await;
        #[cfg(feature = "telemetry")]
        if let Some(telemetry) = telemetry {
            telemetry.flush().await;
        }
        #[cfg(feature = "serve")]
        if let Some(serving) = serving {
            serving.end().await;
        }
        outcome
    }

    /// Starts to answer requests.
    #[cfg(feature = "serve")]
    fn serving(mut self) -> (Option<Serving>, Self) {
        let pages = self.debug_pages();
        (self.server.take().map(|server| server.start(&self.health, &self.metrics, pages)), self)
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

    async fn work(mut self, stop: impl Future<Output = ()>) -> Result<(), RunError> {
        let open = connected(self.config.clone(), &Fence::open(), &self.metrics)?;
        #[cfg(feature = "webhook")]
        let hooks = self.serve_webhooks(&open);
        let mut names = HashSet::new();
        if let Some(twice) = self.controllers.iter().find(|task| !names.insert(task.runs.name())) {
            return Err(RunError::SameName(twice.runs.name().to_owned()));
        }
        let (stopping, stopped) = watch::channel(false);
        let mut tasks = JoinSet::new();
        let others = self.clusters.iter().map(|cluster| (cluster.caches.clone(), cluster.open.clone()));
        for (caches, client) in others.chain([(self.caches.clone(), open.clone())]) {
            let limit = self.answer_limit;
            tasks.spawn(async move {
                caches.fill_within(&client, limit).await;
                "a watch"
            });
        }
        let mut stop = pin!(stop);
        tokio::select! {
            () = self.synced() => {}
            limit = sleep(self.sync_limit) => return Err(self.not_synced(limit)),
            () = &mut stop => return Ok(()),
            ended = tasks.join_next(), if !tasks.is_empty() => return Err(defect(ended)),
        }
        if let Some(start) = self.start.take() {
            start.ready();
        }
        // From here on, only caches and the election send requests without the lease.
        let (role, election) = self.election(open)?;
        let (releasing, released) = watch::channel(false);
        let mut electing = JoinSet::new();
        election.map(|election| electing.spawn(election.run(wait_for_true(released))));
        let client = connected(self.config.clone(), &self.fence, &self.metrics)?;
        let (roles, informed) = watch::channel(Role::Standby);
        let mut informing = JoinSet::new();
        informing.spawn(inform(self.all_caches(), role, roles));
        let mut working = JoinSet::new();
        for Task { runs, client: own } in &self.controllers {
            let (client, role, stop) = (own.as_ref().unwrap_or(&client).clone(), informed.clone(), stopped.clone());
            let pulse = self.health.pulse(runs.name());
            working.spawn(runs.clone().run(Orders { client, role, stop, grace: self.grace, pulse }));
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
        #[cfg(feature = "webhook")]
        futures::future::join_all(hooks.into_iter().map(crate::webhook::Serving::end)).await;
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
            self.controllers.push(Task { runs: Arc::new(Runnable::new(name, register)), client: None });
            serving.push(served);
        }
        serving
    }

    fn all_caches(&self) -> Vec<Arc<Caches>> {
        self.clusters.iter().map(|cluster| &cluster.caches).chain([&self.caches]).cloned().collect()
    }

    /// Returns each kind, with the cluster if that is not the manager's, and a future that completes when its cache is synced.
    fn kinds(&self) -> Vec<(String, BoxFuture<'static, ()>)> {
        let elsewhere = self.clusters.iter().flat_map(|cluster| {
            cluster.caches.synced().into_iter().map(|(kind, synced)| (format!("{}/{kind}", cluster.name), synced))
        });
        elsewhere.chain(self.caches.synced()).collect()
    }

    async fn synced(&self) {
        let awaited: Vec<_> = self
            .kinds()
            .into_iter()
            .map(|(kind, synced)| (self.health.wait_for(format!("cache/{kind}")), synced))
            .collect();
        let one = |(awaited, synced): (Awaited, BoxFuture<'static, ()>)| async move {
            synced.await;
            awaited.ready();
        };
        futures::future::join_all(awaited.into_iter().map(one)).await;
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

impl std::fmt::Debug for Manager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let controllers: Vec<_> = self.controllers.iter().map(|task| task.runs.name()).collect();
        f.debug_struct("Manager").field("controllers", &controllers).field("lease", &self.lease).finish_non_exhaustive()
    }
}

fn connected(config: Config, fence: &Fence, metrics: &Metrics) -> Result<Client, RunError> {
    connect(config, fence, Some(metrics)).map_err(|error| RunError::Client(Box::new(error)))
}

async fn catch_up(caches: &[Arc<Caches>]) {
    futures::future::join_all(caches.iter().map(|caches| caches.catch_up())).await;
}

/// Forwards the role to the controllers. A lead waits for failed watches to catch up, so that no reconcile sees the state
/// from before the gap.
async fn inform(caches: Vec<Arc<Caches>>, mut role: watch::Receiver<Role>, informed: watch::Sender<Role>) {
    loop {
        let now = *role.borrow_and_update();
        if let Role::Leading { .. } = now {
            tokio::select! {
                // A list that is never answered must not block the other kinds.
                _ = tokio::time::timeout(CATCHING_UP, catch_up(&caches)) => {}
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

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;
    use crate::{Action, Context};

    struct Nothing;

    impl Reconciler for Nothing {
        type Object = ConfigMap;
        type Error = kube::Error;

        async fn reconcile(&self, _: Arc<ConfigMap>, _: Context) -> Result<Action, kube::Error> {
            Ok(Action::Change)
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
