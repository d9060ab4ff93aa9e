//! Metrics of the controllers' queues.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use super::Histograms;
use crate::queue::{Lane, Queue};

type Seconds = Gauge<f64, AtomicU64>;

/// controller-runtime gives a queue the name of its controller.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Of {
    name: String,
    controller: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfWithPriority {
    name: String,
    controller: String,
    priority: &'static str,
}

/// Metrics of all queues.
#[derive(Debug)]
pub(super) struct Queues {
    depth: Family<OfWithPriority, Gauge>,
    adds: Family<Of, Counter>,
    waited: Histograms<Of>,
    worked: Histograms<Of>,
    unfinished: Family<Of, Seconds>,
    longest: Family<Of, Seconds>,
    retries: Family<Of, Counter>,
}

impl Queues {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let times = || Histograms::new_with_constructor(|| Histogram::new(exponential_buckets(10e-9, 10.0, 12)));
        let of = Self {
            depth: Family::default(),
            adds: Family::default(),
            waited: times(),
            worked: times(),
            unfinished: Family::default(),
            longest: Family::default(),
            retries: Family::default(),
        };
        let registry = registry.sub_registry_with_prefix("workqueue");
        registry.register("depth", "Current depth of workqueue by workqueue and priority", of.depth.clone());
        registry.register("adds", "Total number of adds handled by workqueue", of.adds.clone());
        let help = "How long in seconds an item stays in workqueue before being requested";
        registry.register("queue_duration_seconds", help, of.waited.clone());
        let help = "How long in seconds processing an item from workqueue takes";
        registry.register("work_duration_seconds", help, of.worked.clone());
        let help =
            "How many seconds of work is in progress and not in work_duration yet; large values indicate stuck workers";
        registry.register("unfinished_work_seconds", help, of.unfinished.clone());
        let help = "How many seconds has the longest running processor for workqueue been running";
        registry.register("longest_running_processor_seconds", help, of.longest.clone());
        registry.register(
            "retries",
            "Total number of items added to the workqueue with a non-zero delay",
            of.retries.clone(),
        );
        of
    }

    pub(super) fn of(&self, controller: &str) -> QueueMetrics {
        let of = Of { name: controller.to_owned(), controller: controller.to_owned() };
        let depth = |priority| {
            let (name, controller) = (controller.to_owned(), controller.to_owned());
            self.depth.get_or_create_owned(&OfWithPriority { name, controller, priority })
        };
        QueueMetrics {
            // Priorities as in controller-runtime: 0 for changed and due objects, -100 for resyncs.
            depth: depth("0"),
            resyncs: depth("-100"),
            adds: self.adds.get_or_create_owned(&of),
            waited: self.waited.get_or_create_owned(&of),
            worked: self.worked.get_or_create_owned(&of),
            unfinished: self.unfinished.get_or_create_owned(&of),
            longest: self.longest.get_or_create_owned(&of),
            retries: self.retries.get_or_create_owned(&of),
        }
    }
}

/// Metrics of one queue.
#[derive(Clone, Debug)]
pub(crate) struct QueueMetrics {
    depth: Gauge,
    resyncs: Gauge,
    adds: Counter,
    waited: Histogram,
    worked: Histogram,
    unfinished: Seconds,
    longest: Seconds,
    retries: Counter,
}

impl QueueMetrics {
    /// Runs `act` on the queue, and updates the metrics.
    pub(crate) fn with<K, T>(&self, queue: &mut Queue<K>, act: impl FnOnce(&mut Queue<K>) -> T) -> T
    where
        K: Clone + Eq + std::hash::Hash,
    {
        let before = queue.added();
        let done = act(queue);
        // If `act` replaced the queue, the count started at 0.
        self.adds.inc_by(queue.added().checked_sub(before).unwrap_or_else(|| queue.added()));
        self.depth.set((queue.waiting_in(Lane::Changed) + queue.waiting_in(Lane::Due)) as i64);
        self.resyncs.set(queue.waiting_in(Lane::Resync) as i64);
        done
    }

    pub(crate) fn handed_out(&self, waited: Duration) {
        self.waited.observe(waited.as_secs_f64());
    }

    pub(super) fn worked(&self, took: Duration) {
        self.worked.observe(took.as_secs_f64());
    }

    pub(super) fn retried(&self) {
        self.retries.inc();
    }

    pub(super) fn under_way(&self, ages: &[Duration]) {
        self.unfinished.set(ages.iter().sum::<Duration>().as_secs_f64());
        self.longest.set(ages.iter().max().copied().unwrap_or_default().as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::metrics::Metrics;
    use crate::queue::{Cause, Settings};

    #[test]
    fn an_object_is_an_add_each_time_it_begins_to_wait_and_in_the_depth_while_it_does() {
        let metrics = Metrics::default();
        let of_queue = metrics.of("tank", 1).queue;
        let (mut queue, now) = (Queue::new(Settings::default()), Instant::now());
        of_queue.with(&mut queue, |queue| {
            queue.add(&"a", Cause::Changed, now);
            queue.add(&"a", Cause::Changed, now);
            queue.add(&"b", Cause::Resync, now);
        });
        let has = |line: &str| metrics.text().lines().any(|there| there == line);
        assert!(has("workqueue_adds_total{name=\"tank\",controller=\"tank\"} 2"), "{}", metrics.text());
        assert!(has("workqueue_depth{name=\"tank\",controller=\"tank\",priority=\"0\"} 1"), "{}", metrics.text());
        assert!(has("workqueue_depth{name=\"tank\",controller=\"tank\",priority=\"-100\"} 1"), "{}", metrics.text());

        let later = now + Duration::from_secs(3);
        let job = of_queue.with(&mut queue, |queue| queue.next(later)).expect("two wait");
        assert_eq!((job.key, job.waited), ("a", Duration::from_secs(3)));
        of_queue.with(&mut queue, |queue| *queue = Queue::new(Settings::default()));
        of_queue.under_way(&[Duration::from_secs(1), Duration::from_secs(2)]);
        assert_eq!((of_queue.unfinished.get(), of_queue.longest.get()), (3.0, 2.0));
        assert!(has("workqueue_depth{name=\"tank\",controller=\"tank\",priority=\"0\"} 0"), "{}", metrics.text());
        assert!(has("workqueue_adds_total{name=\"tank\",controller=\"tank\"} 2"), "{}", metrics.text());
    }
}
