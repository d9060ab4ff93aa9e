//! Closed-loop load: every client sends its next operation after the response to the last one.

use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use tokio::task::JoinSet;

use crate::target::Target;

/// A client's repeated operation.
pub(crate) trait Step: Send + 'static {
    /// Performs one operation and checks its response.
    fn step(&mut self) -> impl Future<Output = Result<Done>> + Send;
}

/// A finished operation.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Done {
    /// The server's revision in the response.
    pub(crate) revision: i64,
    /// Number of retries after conflicts with other clients.
    pub(crate) conflicts: u64,
}

/// The result of a stretch of load.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    /// Finished operations.
    pub(crate) operations: u64,
    /// From the first request to the last response.
    pub(crate) elapsed: Duration,
    /// Time of each operation, in nanoseconds.
    pub(crate) latency: Histogram<u64>,
    /// Sum of [`Done::conflicts`].
    pub(crate) conflicts: u64,
}

impl Tally {
    /// An empty tally.
    pub(crate) fn new() -> Self {
        Self { operations: 0, elapsed: Duration::ZERO, latency: histogram(), conflicts: 0 }
    }

    /// Adds a later stretch of the same load.
    pub(crate) fn add(&mut self, other: &Self) {
        self.operations += other.operations;
        self.elapsed += other.elapsed;
        self.conflicts += other.conflicts;
        self.merge_latency(&other.latency);
    }

    fn merge_latency(&mut self, other: &Histogram<u64>) {
        self.latency.add(other).expect("all histograms have the same bounds");
    }

    /// Operations per second.
    pub(crate) fn rate(&self) -> f64 {
        self.operations as f64 / self.elapsed.as_secs_f64().max(f64::EPSILON)
    }
}

/// An empty histogram of nanoseconds, exact to 0.1 % between 1 µs and 100 s.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1_000, 100_000_000_000, 3).expect("the bounds are valid")
}

/// Runs all `steps` concurrently for `length`; operations in flight are finished.
///
/// # Errors
/// The first failed operation stops the load.
pub(crate) async fn closed_loop<S: Step>(target: &Target, steps: Vec<S>, length: Duration) -> Result<Tally> {
    let start = Instant::now();
    let mut clients = JoinSet::new();
    for mut step in steps {
        let (client, compactor) = (target.client.clone(), target.compactor.clone());
        clients.spawn(async move {
            let mut tally = Tally::new();
            let mut sent = Instant::now();
            while sent.duration_since(start) < length {
                let done = step.step().await?;
                let answered = Instant::now();
                tally.elapsed = answered.duration_since(start);
                let nanoseconds = answered.duration_since(sent).as_nanos() as u64;
                tally.latency.saturating_record(nanoseconds);
                tally.operations += 1;
                tally.conflicts += done.conflicts;
                compactor.observe(&client, done.revision).await?;
                sent = Instant::now();
            }
            anyhow::Ok(tally)
        });
    }
    let mut total = Tally::new();
    while let Some(finished) = clients.join_next().await {
        let tally = finished.context("a client panicked")??;
        let elapsed = total.elapsed.max(tally.elapsed);
        total.add(&tally);
        total.elapsed = elapsed;
    }
    Ok(total)
}
