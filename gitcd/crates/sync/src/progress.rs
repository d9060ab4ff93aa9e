//! Progress of fetches: counters that a transport increases, and that others show.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

/// The counters of a remote's fetches. Cheap to clone; clones share them.
#[derive(Clone, Debug, Default)]
pub struct FetchProgress(Arc<Counters>);

#[derive(Debug, Default)]
struct Counters {
    started: Mutex<Option<Instant>>,
    /// Notified when a fetch starts.
    begun: Notify,
    bytes: AtomicU64,
    objects: AtomicU64,
    total_objects: AtomicU64,
    commits: AtomicU64,
    total_commits: AtomicU64,
    /// Rises with every sign of life, which distinguishes a slow fetch from one that hangs.
    steps: AtomicU64,
}

/// A fetch in progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Fetching {
    /// How long it has been running, in seconds.
    pub seconds: f64,
    /// Received bytes of the pack.
    pub bytes: u64,
    /// Received objects.
    pub objects: u64,
    /// Number of objects in the pack; 0 while it is unknown.
    pub total_objects: u64,
    /// Commits that were added to the repository, with their objects.
    pub commits: u64,
    /// Number of commits to add; 0 until they have been received.
    pub total_commits: u64,
}

/// Ends the fetch when dropped.
#[derive(Debug)]
pub(super) struct Running(FetchProgress);

impl FetchProgress {
    /// Starts counting a fetch.
    pub(super) fn begin(&self) -> Running {
        let of = &self.0;
        for counter in [&of.bytes, &of.objects, &of.total_objects, &of.commits, &of.total_commits] {
            counter.store(0, Ordering::Relaxed);
        }
        *of.started.lock() = Some(Instant::now());
        of.begun.notify_one();
        Running(self.clone())
    }

    /// Counts received bytes.
    pub(super) fn received(&self, bytes: usize) {
        self.0.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.step();
    }

    /// Sets how many objects were received, of how many.
    pub(super) fn objects(&self, received: u64, total: u64) {
        self.0.objects.store(received, Ordering::Relaxed);
        self.0.total_objects.store(total, Ordering::Relaxed);
        self.step();
    }

    /// Sets how many bytes were received.
    pub(super) fn bytes(&self, received: u64) {
        self.0.bytes.store(received, Ordering::Relaxed);
        self.step();
    }

    /// Sets how many commits were added to the repository, of how many.
    pub(super) fn commits(&self, added: usize, total: usize) {
        self.0.commits.store(added as u64, Ordering::Relaxed);
        self.0.total_commits.store(total as u64, Ordering::Relaxed);
        self.step();
    }

    /// Notes that a fetch is alive.
    pub(super) fn step(&self) {
        self.0.steps.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns a number that rises while fetches make progress.
    pub(super) fn steps(&self) -> u64 {
        self.0.steps.load(Ordering::Relaxed)
    }

    /// Returns the fetch in progress, if there is one.
    pub fn current(&self) -> Option<Fetching> {
        let of = &self.0;
        let started = (*of.started.lock())?;
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Some(Fetching {
            seconds: started.elapsed().as_secs_f64(),
            bytes: load(&of.bytes),
            objects: load(&of.objects),
            total_objects: load(&of.total_objects),
            commits: load(&of.commits),
            total_commits: load(&of.total_commits),
        })
    }

    /// Waits until a fetch starts. For one task at a time. Cancel-safe.
    pub async fn started(&self) {
        while self.current().is_none() {
            self.0.begun.notified().await;
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        *self.0.0.started.lock() = None;
    }
}

impl fmt::Display for Fetching {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.total_commits > 0 {
            return write!(
                f,
                "adding commits: {} of {} ({})",
                self.commits,
                self.total_commits,
                Bytes(self.bytes as f64)
            );
        }
        match self.total_objects {
            0 => {}
            total => write!(f, "{} of {total} objects, ", self.objects)?,
        }
        write!(f, "{}, {}/s", Bytes(self.bytes as f64), Bytes(self.bytes as f64 / self.seconds.max(0.001)))
    }
}

/// A size with a binary unit.
struct Bytes(f64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
        let (mut size, mut unit) = (self.0 / 1024.0, 0);
        while size >= 1024.0 && unit + 1 < UNITS.len() {
            (size, unit) = (size / 1024.0, unit + 1);
        }
        write!(f, "{size:.1} {}", UNITS[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_fetch_is_visible_while_it_runs() {
        let progress = FetchProgress::default();
        assert_eq!(progress.current(), None);
        let seen = progress.clone();
        let waits = tokio::spawn(async move { seen.started().await });
        let running = progress.begin();
        progress.received(3 << 20);
        progress.objects(7, 10);
        tokio::time::timeout(std::time::Duration::from_secs(10), waits).await.expect("it has started").unwrap();
        let shown = progress.current().unwrap();
        assert_eq!((shown.bytes, shown.objects, shown.total_objects), (3 << 20, 7, 10));
        drop(running);
        assert_eq!(progress.current(), None);
        let _again = progress.begin();
        assert_eq!(progress.current().unwrap().bytes, 0, "it starts from zero");
        assert_eq!(progress.steps(), 2);
    }

    #[test]
    fn progress_shows_objects_bytes_and_rate() {
        let fetching = Fetching { seconds: 4.0, bytes: 6 << 20, objects: 7, total_objects: 10, ..Fetching::default() };
        assert_eq!(fetching.to_string(), "7 of 10 objects, 6.0 MiB, 1.5 MiB/s");
        assert_eq!(Fetching { total_objects: 0, ..fetching }.to_string(), "6.0 MiB, 1.5 MiB/s");
        assert_eq!(
            Fetching { commits: 3, total_commits: 8, ..fetching }.to_string(),
            "adding commits: 3 of 8 (6.0 MiB)"
        );
        assert_eq!(Bytes(3.5 * 1024.0 * 1024.0 * 1024.0).to_string(), "3.5 GiB");
    }
}
