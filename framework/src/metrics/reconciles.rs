//! Metrics of a controller's reconciles.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tokio::task::Id;

use super::Histograms;
use super::queues::{QueueMetrics, Queues};

const BUCKETS: [f64; 40] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5,
    1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0,
];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Of {
    controller: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfWithResult {
    controller: String,
    result: &'static str,
}

/// Metrics of all controllers.
#[derive(Debug)]
pub(super) struct Reconciles {
    total: Family<OfWithResult, Counter>,
    errors: Family<Of, Counter>,
    terminal: Family<Of, Counter>,
    panics: Family<Of, Counter>,
    timeouts: Family<Of, Counter>,
    time: Histograms<Of>,
    concurrency: Family<Of, Gauge>,
    active: Family<Of, Gauge>,
}

impl Reconciles {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let of = Self {
            total: Family::default(),
            errors: Family::default(),
            terminal: Family::default(),
            panics: Family::default(),
            timeouts: Family::default(),
            time: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            concurrency: Family::default(),
            active: Family::default(),
        };
        let registry = registry.sub_registry_with_prefix("controller_runtime");
        // The encoder adds `_total` to counters.
        registry.register("reconcile", "Total number of reconciliations per controller", of.total.clone());
        for (name, what, counters) in [
            ("reconcile_errors", "reconciliation errors", &of.errors),
            ("terminal_reconcile_errors", "terminal reconciliation errors", &of.terminal),
            ("reconcile_panics", "reconciliation panics", &of.panics),
            ("reconcile_timeouts", "reconciliation timeouts", &of.timeouts),
        ] {
            registry.register(name, format!("Total number of {what} per controller"), counters.clone());
        }
        let help = "Length of time per reconciliation per controller";
        registry.register("reconcile_time_seconds", help, of.time.clone());
        let help = "Maximum number of concurrent reconciles per controller";
        registry.register("max_concurrent_reconciles", help, of.concurrency.clone());
        registry.register("active_workers", "Number of currently used workers per controller", of.active.clone());
        of
    }

    /// Returns the metrics of one controller, all present from the start.
    pub(super) fn of(&self, queues: &Queues, controller: &str, concurrency: usize) -> ControllerMetrics {
        let of = Of { controller: controller.to_owned() };
        let total =
            |result| self.total.get_or_create_owned(&OfWithResult { controller: controller.to_owned(), result });
        self.concurrency.get_or_create(&of).set(concurrency as i64);
        ControllerMetrics {
            success: total("success"),
            error: total("error"),
            requeue: total("requeue"),
            requeue_after: total("requeue_after"),
            errors: self.errors.get_or_create_owned(&of),
            terminal: self.terminal.get_or_create_owned(&of),
            panics: self.panics.get_or_create_owned(&of),
            timeouts: self.timeouts.get_or_create_owned(&of),
            time: self.time.get_or_create_owned(&of),
            active: self.active.get_or_create_owned(&of),
            queue: queues.of(controller),
            began: Arc::default(),
        }
    }
}

/// Metrics of one controller.
#[derive(Clone, Debug)]
pub(crate) struct ControllerMetrics {
    success: Counter,
    error: Counter,
    requeue: Counter,
    requeue_after: Counter,
    errors: Counter,
    terminal: Counter,
    panics: Counter,
    timeouts: Counter,
    time: Histogram,
    active: Gauge,
    pub(crate) queue: QueueMetrics,
    /// When the running reconciles started.
    began: Arc<Mutex<HashMap<Id, Instant>>>,
}

/// How a reconcile ended, for metrics and traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Success,
    /// To be reconciled again after a delay.
    Again,
    /// To be reconciled again immediately.
    AtOnce,
    Failed,
    Terminal,
    TimedOut,
    Panicked,
    /// Because the lease was lost, or the program ends.
    Cancelled,
}

impl ControllerMetrics {
    pub(crate) fn began(&self, task: Id) {
        self.under_way(|began| began.insert(task, Instant::now()));
        self.active.inc();
    }

    pub(crate) fn ended(&self, task: Id, ending: Ending) {
        if let Some(began) = self.under_way(|began| began.remove(&task)) {
            self.count(ending, began.elapsed());
        }
    }

    /// Updates the metrics that change with time.
    pub(crate) fn look(&self) {
        let ages: Vec<_> = self.under_way(|began| began.values().map(Instant::elapsed).collect());
        self.queue.under_way(&ages);
    }

    fn under_way<T>(&self, look: impl FnOnce(&mut HashMap<Id, Instant>) -> T) -> T {
        look(&mut self.began.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn count(&self, ending: Ending, took: Duration) {
        self.active.dec();
        self.queue.worked(took);
        match ending {
            Ending::Cancelled => return,
            Ending::Success => drop(self.success.inc()),
            Ending::Again => drop(self.requeue_after.inc()),
            Ending::AtOnce => drop(self.requeue.inc()),
            Ending::Failed | Ending::Terminal | Ending::TimedOut | Ending::Panicked => {
                self.errors.inc();
                self.error.inc();
            }
        }
        match ending {
            Ending::Terminal => drop(self.terminal.inc()),
            Ending::TimedOut => drop(self.timeouts.inc()),
            Ending::Panicked => drop(self.panics.inc()),
            _ => {}
        }
        if matches!(ending, Ending::Again | Ending::AtOnce | Ending::Failed | Ending::TimedOut | Ending::Panicked) {
            self.queue.retried();
        }
        self.time.observe(took.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;

    #[test]
    fn every_ending_is_counted_where_controller_runtime_counts_it() {
        let metrics = Metrics::default();
        let controller = metrics.of("tank", 4);
        for (ending, took) in [
            (Ending::Success, 1),
            (Ending::Again, 2),
            (Ending::AtOnce, 2),
            (Ending::Failed, 3),
            (Ending::Terminal, 20),
            (Ending::TimedOut, 40),
            (Ending::Panicked, 300),
            (Ending::Cancelled, 1),
        ] {
            controller.active.inc();
            controller.count(ending, Duration::from_millis(took));
        }
        controller.active.inc();
        let text = metrics.text();
        for line in [
            "controller_runtime_reconcile_total{controller=\"tank\",result=\"success\"} 1",
            "controller_runtime_reconcile_total{controller=\"tank\",result=\"requeue_after\"} 1",
            "controller_runtime_reconcile_total{controller=\"tank\",result=\"requeue\"} 1",
            "controller_runtime_reconcile_total{controller=\"tank\",result=\"error\"} 4",
            "controller_runtime_reconcile_errors_total{controller=\"tank\"} 4",
            "controller_runtime_terminal_reconcile_errors_total{controller=\"tank\"} 1",
            "controller_runtime_reconcile_panics_total{controller=\"tank\"} 1",
            "controller_runtime_reconcile_timeouts_total{controller=\"tank\"} 1",
            "controller_runtime_reconcile_time_seconds_count{controller=\"tank\"} 7",
            "controller_runtime_reconcile_time_seconds_bucket{le=\"0.005\",controller=\"tank\"} 4",
            "controller_runtime_reconcile_time_seconds_bucket{le=\"0.025\",controller=\"tank\"} 5",
            "controller_runtime_reconcile_time_seconds_bucket{le=\"60.0\",controller=\"tank\"} 7",
            "controller_runtime_max_concurrent_reconciles{controller=\"tank\"} 4",
            "controller_runtime_active_workers{controller=\"tank\"} 1",
            "workqueue_retries_total{name=\"tank\",controller=\"tank\"} 5",
            "workqueue_work_duration_seconds_count{name=\"tank\",controller=\"tank\"} 8",
        ] {
            assert!(text.lines().any(|there| there == line), "{line} is not in\n{text}");
        }
    }
}
