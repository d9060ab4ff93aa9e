//! Metrics with the names, labels and buckets of Go's controller-runtime, so that its dashboards and alerts work.
//!
//! Compared with controller-runtime v0.24.1 and client-go v0.36: `pkg/metrics`, `pkg/internal/metrics` and
//! `pkg/internal/controller/metrics`.
//!
//! | name | labels | meaning |
//! |---|---|---|
//! | `controller_runtime_reconcile_total` | `controller`, `result`: `success`, `error`, `requeue`, `requeue_after` | reconciles; `requeue` is [`After(ZERO)`](crate::Action::After) |
//! | `controller_runtime_reconcile_errors_total` | `controller` | failures, panics and timeouts |
//! | `controller_runtime_terminal_reconcile_errors_total` | `controller` | failures that are retried only after a change |
//! | `controller_runtime_reconcile_panics_total` | `controller` | panics |
//! | `controller_runtime_reconcile_timeouts_total` | `controller` | reconciles that exceeded their time limit |
//! | `controller_runtime_reconcile_time_seconds` | `controller` | a histogram of durations |
//! | `controller_runtime_max_concurrent_reconciles` | `controller` | [`Controller::concurrency`](crate::Controller::concurrency) |
//! | `controller_runtime_active_workers` | `controller` | running reconciles |
//! | `workqueue_depth` | `name`, `controller`, `priority` | objects that wait for a slot: `0` changed or due, `-100` resyncs |
//! | `workqueue_adds_total` | `name`, `controller` | how often an object was queued |
//! | `workqueue_queue_duration_seconds` | `name`, `controller` | a histogram of the time until a slot was free |
//! | `workqueue_work_duration_seconds` | `name`, `controller` | a histogram of the time in progress |
//! | `workqueue_unfinished_work_seconds` | `name`, `controller` | the sum of the ages of running reconciles |
//! | `workqueue_longest_running_processor_seconds` | `name`, `controller` | the age of the oldest running reconcile |
//! | `workqueue_retries_total` | `name`, `controller` | objects that were requeued with a delay |
//! | `leader_election_master_status` | `name` | 1 while this replica holds the lease |
//! | `leader_election_slowpath_total` | `name` | renewals that had to read the lease first; controller-runtime counts them and does not expose them |
//! | `rest_client_requests_total` | `code`, `method`, `host` | requests to the apiserver; `<error>` is one without a response |
//! | `rest_client_request_duration_seconds` | `verb`, `host` | a histogram of the time until the head of the response, without watches; optional in controller-runtime |
//!
//! One metric is not controller-runtime's:
//!
//! | name | labels | meaning |
//! |---|---|---|
//! | `cache_unreadable_objects` | `group`, `kind` | objects that are skipped, because they do not match their [type](crate::cache); alert if there are any |
//!
//! Metrics of the Go runtime, of the process, and of missing features (webhooks, certificates, the client's rate limiter)
//! have no counterpart.

mod caches;
mod leases;
mod queues;
mod reconciles;
mod requests;

use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use trishanku_service::exposition;

pub(crate) use self::caches::CacheMetrics;
pub(crate) use self::leases::LeaseMetrics;
use self::leases::Leases;
use self::queues::Queues;
use self::reconciles::Reconciles;
pub(crate) use self::reconciles::{ControllerMetrics, Ending};
pub(crate) use self::requests::Requests;

/// Content type of [`Metrics::text`].
pub const CONTENT_TYPE: &str = exposition::OPEN_METRICS;

/// Content type of [`Metrics::plain`].
pub const PLAIN_CONTENT_TYPE: &str = exposition::PLAIN;

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

/// The metrics of a manager. Clones share them.
#[derive(Clone, Debug)]
pub struct Metrics(Arc<Families>);

#[derive(Debug)]
struct Families {
    registry: Mutex<Registry>,
    reconciles: Reconciles,
    queues: Queues,
    leases: Leases,
    requests: Requests,
    caches: CacheMetrics,
    /// Metrics of each controller, some of which must be updated before they are read.
    controllers: Mutex<Vec<ControllerMetrics>>,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        Self(Arc::new(Families {
            reconciles: Reconciles::register(&mut registry),
            queues: Queues::register(&mut registry),
            leases: Leases::register(&mut registry),
            requests: Requests::register(&mut registry),
            caches: CacheMetrics::register(&mut registry),
            registry: Mutex::new(registry),
            controllers: Mutex::default(),
        }))
    }
}

impl Metrics {
    /// Returns all metrics as `OpenMetrics` text; serve it as [`CONTENT_TYPE`].
    pub fn text(&self) -> String {
        self.0.controllers.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(ControllerMetrics::look);
        let mut text = String::new();
        // Writing into a string does not fail.
        let _written = self.with_registry(|registry| encode(&mut text, registry));
        text
    }

    /// Returns all metrics in Prometheus' text format, with bounds of buckets as Go prints them; serve it as
    /// [`PLAIN_CONTENT_TYPE`].
    pub fn plain(&self) -> String {
        exposition::plain(&self.text(), &[])
    }

    /// Calls `add` with the registry, so that you can register metrics of your own.
    pub fn with_registry<T>(&self, add: impl FnOnce(&mut Registry) -> T) -> T {
        add(&mut self.0.registry.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the metrics of one controller, all present from the start.
    pub(crate) fn of(&self, controller: &str, concurrency: usize) -> ControllerMetrics {
        let metrics = self.0.reconciles.of(&self.0.queues, controller, concurrency);
        self.0.controllers.lock().unwrap_or_else(PoisonError::into_inner).push(metrics.clone());
        metrics
    }

    pub(crate) fn of_lease(&self, name: &str) -> LeaseMetrics {
        self.0.leases.of(name)
    }

    pub(crate) fn requests(&self) -> Requests {
        self.0.requests.clone()
    }

    pub(crate) fn of_caches(&self) -> CacheMetrics {
        self.0.caches.clone()
    }
}
