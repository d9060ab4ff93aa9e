//! Measurements of one kind of work on one store.

use std::time::Duration;

use serde::Serialize;

use crate::load::Tally;
use crate::process;

/// The results of one kind of work on one store.
#[derive(Debug, Serialize)]
pub(crate) struct Side {
    /// Operations per second of load.
    pub(crate) rate: f64,
    /// The rate of each turn.
    pub(crate) turns: Vec<f64>,
    pub(crate) operations: u64,
    pub(crate) load_seconds: f64,
    /// Latencies in milliseconds.
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) max_ms: f64,
    /// Processor seconds of the store and of its kube-apiserver, including work after the turns.
    pub(crate) store_cpu_seconds: f64,
    pub(crate) apiserver_cpu_seconds: f64,
    /// Processor seconds of this program in the turns, and of everything else on the machine: noise.
    pub(crate) client_cpu_seconds: f64,
    pub(crate) other_cpu_seconds: f64,
    /// Bytes that the store wrote to disk.
    pub(crate) written_bytes: u64,
}

/// Operations and resource usage of one turn.
pub(super) struct Done {
    pub(super) tally: Tally,
    pub(super) store: process::Usage,
    pub(super) apiserver_cpu: Duration,
    pub(super) client_cpu: Duration,
    pub(super) other_cpu: Duration,
}

/// The sum of the turns so far.
#[derive(Clone)]
pub(super) struct Gathered {
    pub(super) total: Tally,
    turns: Vec<f64>,
    store: process::Usage,
    apiserver_cpu: Duration,
    client_cpu: Duration,
    other_cpu: Duration,
}

impl Default for Gathered {
    fn default() -> Self {
        let none = Duration::ZERO;
        Self {
            total: Tally::new(),
            turns: Vec::new(),
            store: process::Usage::default(),
            apiserver_cpu: none,
            client_cpu: none,
            other_cpu: none,
        }
    }
}

impl Gathered {
    /// Adds a turn.
    pub(super) fn add(&mut self, done: &Done) {
        self.turns.push(done.tally.rate());
        self.total.add(&done.tally);
        self.store.cpu += done.store.cpu;
        self.store.written += done.store.written;
        self.apiserver_cpu += done.apiserver_cpu;
        self.client_cpu += done.client_cpu;
        self.other_cpu += done.other_cpu;
    }

    /// Computes the results.
    pub(super) fn finish(self) -> Side {
        let milliseconds = |quantile: f64| self.total.latency.value_at_quantile(quantile) as f64 / 1_000_000.0;
        Side {
            rate: self.total.rate(),
            operations: self.total.operations,
            load_seconds: self.total.elapsed.as_secs_f64(),
            p50_ms: milliseconds(0.5),
            p99_ms: milliseconds(0.99),
            max_ms: milliseconds(1.0),
            store_cpu_seconds: self.store.cpu.as_secs_f64(),
            apiserver_cpu_seconds: self.apiserver_cpu.as_secs_f64(),
            client_cpu_seconds: self.client_cpu.as_secs_f64(),
            other_cpu_seconds: self.other_cpu.as_secs_f64(),
            written_bytes: self.store.written,
            turns: self.turns,
        }
    }
}
