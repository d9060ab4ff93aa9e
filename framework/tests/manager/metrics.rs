//! The metrics in a page, and the expected ones.

use std::collections::{BTreeMap, BTreeSet};

/// Type, labels, and the bounds of a histogram.
pub(crate) type Family = (String, BTreeSet<String>, Vec<String>);

/// Parses a page in Prometheus' text format.
pub(crate) fn families(text: &str) -> BTreeMap<String, Family> {
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut current = String::new();
    for line in text.lines() {
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            name.clone_into(&mut current);
            kind.clone_into(&mut families.entry(current.clone()).or_default().0);
        } else if let Some((_, labels)) = line.split_once('{').filter(|_| line.starts_with(&current)) {
            let family = families.get_mut(&current).unwrap();
            for (name, value) in labels.split(',').filter_map(|label| label.split_once('=')) {
                let value = value.split('"').nth(1).unwrap().to_owned();
                if name != "le" {
                    family.1.insert(name.to_owned());
                } else if !family.2.contains(&value) {
                    family.2.push(value);
                }
            }
        }
    }
    families
}

/// The metrics of controller-runtime v0.24.1, from its source: `pkg/internal/controller/metrics/metrics.go`,
/// `pkg/internal/metrics/workqueue.go`, `pkg/metrics/leaderelection.go` and `pkg/metrics/client_go_adapter.go`; the latency
/// of the latter is that of the main branch in August 2026.
pub(crate) fn expected() -> BTreeMap<String, Family> {
    const RECONCILE: &str = "0.005 0.01 0.025 0.05 0.1 0.15 0.2 0.25 0.3 0.35 0.4 0.45 0.5 0.6 0.7 0.8 0.9 1 1.25 1.5 1.75 \
                             2 2.5 3 3.5 4 4.5 5 6 7 8 9 10 15 20 25 30 40 50 60 +Inf";
    const QUEUE: &str = "1e-08 1e-07 1e-06 1e-05 0.0001 0.001 0.01 0.1 1 10 100 1000 +Inf";
    const REQUEST: &str = "0.005 0.025 0.1 0.25 0.5 1 2 4 8 15 30 60 +Inf";
    [
        ("controller_runtime_reconcile_total", "counter", "controller result", ""),
        ("controller_runtime_reconcile_errors_total", "counter", "controller", ""),
        ("controller_runtime_terminal_reconcile_errors_total", "counter", "controller", ""),
        ("controller_runtime_reconcile_panics_total", "counter", "controller", ""),
        ("controller_runtime_reconcile_timeouts_total", "counter", "controller", ""),
        ("controller_runtime_reconcile_time_seconds", "histogram", "controller", RECONCILE),
        ("controller_runtime_max_concurrent_reconciles", "gauge", "controller", ""),
        ("controller_runtime_active_workers", "gauge", "controller", ""),
        ("workqueue_depth", "gauge", "name controller priority", ""),
        ("workqueue_adds_total", "counter", "name controller", ""),
        ("workqueue_queue_duration_seconds", "histogram", "name controller", QUEUE),
        ("workqueue_work_duration_seconds", "histogram", "name controller", QUEUE),
        ("workqueue_unfinished_work_seconds", "gauge", "name controller", ""),
        ("workqueue_longest_running_processor_seconds", "gauge", "name controller", ""),
        ("workqueue_retries_total", "counter", "name controller", ""),
        ("leader_election_master_status", "gauge", "name", ""),
        ("leader_election_slowpath_total", "counter", "name", ""),
        ("rest_client_requests_total", "counter", "code method host", ""),
        ("rest_client_request_duration_seconds", "histogram", "verb host", REQUEST),
        // Ours.
        ("cache_unreadable_objects", "gauge", "group kind", ""),
    ]
    .into_iter()
    .map(|(name, kind, labels, bounds)| {
        let words = |text: &str| text.split_whitespace().map(ToOwned::to_owned).collect::<Vec<_>>();
        (name.to_owned(), (kind.to_owned(), words(labels).into_iter().collect(), words(bounds)))
    })
    .collect()
}
