//! Figures under the names, labels and buckets of Go's controller-runtime, so that its dashboards and alerts work.
//!
//! | name | labels | what |
//! |---|---|---|
//! | `controller_runtime_reconcile_total` | `controller`, `result`: `success`, `error`, `requeue`, `requeue_after` | reconciles; `requeue` is always 0 |
//! | `controller_runtime_reconcile_errors_total` | `controller` | failures, panics and those that took too long |
//! | `controller_runtime_terminal_reconcile_errors_total` | `controller` | failures that only a change helps |
//! | `controller_runtime_reconcile_panics_total` | `controller` | panics |
//! | `controller_runtime_reconcile_time_seconds` | `controller` | a histogram of their time |
//! | `controller_runtime_max_concurrent_reconciles` | `controller` | [`Controller::concurrency`](crate::Controller::concurrency) |
//! | `controller_runtime_active_workers` | `controller` | reconciles under way |

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// What a page with [`Metrics::text`] is.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

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

type Times = Family<Of, Histogram, fn() -> Histogram>;

/// The figures of a manager's controllers. Clones are the same ones.
#[derive(Clone, Debug)]
pub struct Metrics(Arc<Families>);

#[derive(Debug)]
struct Families {
    registry: Mutex<Registry>,
    total: Family<OfWithResult, Counter>,
    errors: Family<Of, Counter>,
    terminal: Family<Of, Counter>,
    panics: Family<Of, Counter>,
    time: Times,
    concurrency: Family<Of, Gauge>,
    active: Family<Of, Gauge>,
}

impl Default for Metrics {
    fn default() -> Self {
        let time: Times = Family::new_with_constructor(|| Histogram::new(BUCKETS));
        let families = Families {
            registry: Mutex::default(),
            total: Family::default(),
            errors: Family::default(),
            terminal: Family::default(),
            panics: Family::default(),
            time,
            concurrency: Family::default(),
            active: Family::default(),
        };
        let metrics = Self(Arc::new(families));
        metrics.with_registry(|registry| {
            let of = &metrics.0;
            let registry = registry.sub_registry_with_prefix("controller_runtime");
            // The text adds `_total` to counters.
            registry.register("reconcile", "Total number of reconciliations per controller", of.total.clone());
            registry.register(
                "reconcile_errors",
                "Total number of reconciliation errors per controller",
                of.errors.clone(),
            );
            let help = "Total number of terminal reconciliation errors per controller";
            registry.register("terminal_reconcile_errors", help, of.terminal.clone());
            registry.register(
                "reconcile_panics",
                "Total number of reconciliation panics per controller",
                of.panics.clone(),
            );
            registry.register(
                "reconcile_time_seconds",
                "Length of time per reconciliation per controller",
                of.time.clone(),
            );
            let help = "Maximum number of concurrent reconciles per controller";
            registry.register("max_concurrent_reconciles", help, of.concurrency.clone());
            registry.register("active_workers", "Number of currently used workers per controller", of.active.clone());
        });
        metrics
    }
}

impl Metrics {
    /// All figures as `OpenMetrics` text; serve it as [`CONTENT_TYPE`].
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing into a string does not fail.
        let _written = self.with_registry(|registry| encode(&mut text, registry));
        text
    }

    /// Adds figures of your own to the text.
    pub fn with_registry<T>(&self, add: impl FnOnce(&mut Registry) -> T) -> T {
        add(&mut self.0.registry.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Those of one controller, all there from the start.
    pub(crate) fn of(&self, controller: &str, concurrency: usize) -> Figures {
        let of = Of { controller: controller.to_owned() };
        let total =
            |result| self.0.total.get_or_create_owned(&OfWithResult { controller: controller.to_owned(), result });
        total("requeue");
        self.0.concurrency.get_or_create(&of).set(concurrency as i64);
        Figures {
            success: total("success"),
            error: total("error"),
            requeue_after: total("requeue_after"),
            errors: self.0.errors.get_or_create_owned(&of),
            terminal: self.0.terminal.get_or_create_owned(&of),
            panics: self.0.panics.get_or_create_owned(&of),
            time: self.0.time.get_or_create_owned(&of),
            active: self.0.active.get_or_create_owned(&of),
        }
    }
}

/// Those of one controller.
#[derive(Clone, Debug)]
pub(crate) struct Figures {
    success: Counter,
    error: Counter,
    requeue_after: Counter,
    errors: Counter,
    terminal: Counter,
    panics: Counter,
    time: Histogram,
    active: Gauge,
}

/// How a reconcile ended, for the figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Success,
    Again,
    Failed,
    Terminal,
    Panicked,
    /// By the end of the lease or the program.
    Cancelled,
}

impl Figures {
    pub(crate) fn began(&self) {
        self.active.inc();
    }

    pub(crate) fn ended(&self, ending: Ending, took: Duration) {
        self.active.dec();
        match ending {
            Ending::Success => self.success.inc(),
            Ending::Again => self.requeue_after.inc(),
            Ending::Cancelled => return,
            Ending::Failed | Ending::Terminal | Ending::Panicked => {
                self.errors.inc();
                self.error.inc()
            }
        };
        match ending {
            Ending::Terminal => drop(self.terminal.inc()),
            Ending::Panicked => drop(self.panics.inc()),
            _ => {}
        }
        self.time.observe(took.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_labels_are_those_of_controller_runtime() {
        let metrics = Metrics::default();
        let figures = metrics.of("tank", 4);
        for (ending, took) in [
            (Ending::Success, 1),
            (Ending::Again, 2),
            (Ending::Failed, 3),
            (Ending::Terminal, 20),
            (Ending::Panicked, 300),
            (Ending::Cancelled, 1),
        ] {
            figures.began();
            figures.ended(ending, Duration::from_millis(took));
        }
        figures.began();
        let text = metrics.text();
        for line in [
            "controller_runtime_reconcile_total{controller=\"tank\",result=\"success\"} 1",
            "controller_runtime_reconcile_total{controller=\"tank\",result=\"requeue_after\"} 1",
            "controller_runtime_reconcile_total{controller=\"tank\",result=\"requeue\"} 0",
            "controller_runtime_reconcile_total{controller=\"tank\",result=\"error\"} 3",
            "controller_runtime_reconcile_errors_total{controller=\"tank\"} 3",
            "controller_runtime_terminal_reconcile_errors_total{controller=\"tank\"} 1",
            "controller_runtime_reconcile_panics_total{controller=\"tank\"} 1",
            "controller_runtime_reconcile_time_seconds_count{controller=\"tank\"} 5",
            "controller_runtime_reconcile_time_seconds_bucket{le=\"0.005\",controller=\"tank\"} 3",
            "controller_runtime_reconcile_time_seconds_bucket{le=\"0.025\",controller=\"tank\"} 4",
            "controller_runtime_reconcile_time_seconds_bucket{le=\"60.0\",controller=\"tank\"} 5",
            "controller_runtime_max_concurrent_reconciles{controller=\"tank\"} 4",
            "controller_runtime_active_workers{controller=\"tank\"} 1",
            "# TYPE controller_runtime_reconcile_time_seconds histogram",
        ] {
            assert!(text.lines().any(|there| there == line), "{line} is not in\n{text}");
        }
    }
}
