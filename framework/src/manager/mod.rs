//! Runs controllers: one program, one client, one lease.

mod run;

use std::sync::Arc;
use std::time::Duration;

use kube::{Client, Config};
use tokio::task::JoinError;

use crate::cache::{ANSWER_LIMIT, Caches, Scope};
use crate::client::connect;
use crate::clock;
use crate::cluster::Cluster;
use crate::controller::{Controller, Driver, Reconciler, Runnable, Runs, Term};
use crate::health::{Awaited, Health};
use crate::lease::{self, Fence};
use crate::metrics::Metrics;
#[cfg(feature = "serve")]
use crate::serve::Server;
#[cfg(feature = "telemetry")]
use crate::telemetry::Telemetry;
#[cfg(feature = "webhook")]
use crate::webhook::Webhooks;

/// A set of controllers with one client, one lease and shared caches.
///
/// - The caches of its cluster are complete before the manager stands for election, so that a new leader starts to work immediately.
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

/// A controller or a runnable, and its cluster if that is not the manager's.
struct Task {
    runs: Arc<dyn Runs>,
    cluster: Option<Cluster>,
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

    /// Sets how long the caches, also those of [other clusters](Self::cluster), may take to be complete after the start; then
    /// [`run`](Self::run) fails with the kinds that are missing. By default, it waits for as long as it takes, and the manager is not
    /// [ready](Self::health) meanwhile.
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
        self.controllers.push(Task { runs: Arc::new(Runnable::new(name.into(), begin)), cluster: None });
        self
    }

    /// Adds a controller.
    #[must_use]
    pub fn controller<R: Reconciler>(mut self, controller: Controller<R>) -> Self {
        self.controllers.push(Task { runs: Driver::new(controller, &self.caches, &self.metrics), cluster: None });
        self
    }

    /// Adds another cluster, with caches and a client of its own. Its requests need the lease, too, which stays in the manager's
    /// cluster. `name` is for errors and probes. Call it inside the runtime.
    ///
    /// A controller starts once the caches of its cluster are complete, and those of other clusters that trigger it. So a cluster that
    /// is away at the start delays only the controllers that depend on it, and is named by the readiness probe. A reconciler that reads
    /// a cache of another cluster without a trigger has to check [`is_synced`](crate::cache::Cache::is_synced).
    ///
    /// ```no_run
    /// use k8s_openapi::api::core::v1::Secret;
    /// use trishanku_framework::cache::Scope;
    /// use trishanku_framework::{Controller, Key, Manager, Reconciler};
    ///
    /// # async fn example(config: kube::Config, other: kube::Config, reconciler: impl Reconciler<Object = Secret>) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut manager = Manager::new(config);
    /// let plant = manager.cluster("plant", &other, Scope::All)?;
    /// let secrets = plant.caches().cache::<Secret>();
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
    ///
    /// # Panics
    /// If the cluster is another manager's.
    #[must_use]
    pub fn controller_in<R: Reconciler>(mut self, cluster: &Cluster, controller: Controller<R>) -> Self {
        let is_ours = self.clusters.iter().any(|ours| Arc::ptr_eq(&ours.caches, &cluster.caches));
        assert!(is_ours, "the cluster {:?} is another manager's", cluster.name);
        let runs = Driver::new(controller, &cluster.caches, &self.metrics);
        self.controllers.push(Task { runs, cluster: Some(cluster.clone()) });
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

    /// Returns the caches of the manager's cluster, for what is created before its controllers: a reconciler takes those that it reads
    /// from [`Kinds`](crate::Kinds). A reconciler can also add one while the manager runs, of a kind that an object names: it is filled
    /// at once, and complete when [`is_synced`](crate::cache::Cache::is_synced) says so; wait with [`Action::After`](crate::Action), because a
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
        // For what needs no lease: caches, the election, and whether a client may read metrics.
        let open = connected(self.config.clone(), &Fence::open(), &self.metrics)?;
        #[cfg(feature = "serve")]
        let (serving, this) = self.serving(&open);
        #[cfg(not(feature = "serve"))]
        let this = self;
        let outcome = this.work(open, stop).await;
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
