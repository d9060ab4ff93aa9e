//! Requests for the metrics themselves.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Numbers of started and ended scrapes.
#[derive(Clone, Debug, Default)]
pub struct Scrapes(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    begun: AtomicU64,
    ended: AtomicU64,
}

impl Scrapes {
    /// Starts a scrape, which ends when the returned value is dropped.
    pub(crate) fn begin(&self) -> Scrape {
        self.0.begun.fetch_add(1, Ordering::Relaxed);
        Scrape(self.0.clone())
    }

    pub(super) fn ended(&self) -> u64 {
        self.0.ended.load(Ordering::Relaxed)
    }

    pub(super) fn in_flight(&self) -> u64 {
        self.0.begun.load(Ordering::Relaxed).saturating_sub(self.ended())
    }
}

/// A scrape in progress.
#[derive(Debug)]
pub(crate) struct Scrape(Arc<Counts>);

impl Drop for Scrape {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Ordering::Relaxed);
    }
}
