//! Histograms with buckets of doubling width, as etcd has them. An observation takes two atomic additions and no lock.

use std::fmt::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::encoding::{MetricEncoder, NoLabelSet};

/// A histogram of sizes or durations.
#[derive(Debug)]
pub struct DoublingHistogram {
    /// The upper bound of the first bucket.
    first: u64,
    /// One for each bound, and one for larger observations.
    buckets: Box<[AtomicU64]>,
    sum: AtomicU64,
}

impl DoublingHistogram {
    /// Creates a histogram with `bounds` bounds, the first of which is `first`.
    pub(crate) fn new(first: u64, bounds: usize) -> Self {
        let buckets = (0..=bounds).map(|_| AtomicU64::default()).collect();
        Self { first, buckets, sum: AtomicU64::default() }
    }

    /// Creates a histogram of durations, in nanoseconds.
    pub(crate) fn of_time(first: Duration, bounds: usize) -> Self {
        Self::new(first.as_nanos() as u64, bounds)
    }

    /// Records an observation.
    pub(crate) fn add(&self, amount: u64) {
        // The upper bounds are `first`, `first * 2`, `first * 4` and so on, inclusive.
        let times = amount.div_ceil(self.first);
        let bucket = if times <= 1 { 0 } else { (times - 1).ilog2() as usize + 1 };
        self.buckets[bucket.min(self.buckets.len() - 1)].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(amount, Ordering::Relaxed);
    }

    /// Records a duration.
    pub(crate) fn took(&self, time: Duration) {
        self.add(time.as_nanos() as u64);
    }

    /// Returns the number of observations.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).sum()
    }

    /// Encodes the histogram in another unit; `unit` is the size of ours in it.
    pub fn encode(&self, unit: f64, mut encoder: MetricEncoder<'_>) -> Result<(), Error> {
        let counts: Vec<_> = self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect();
        // Divide by the inverse: 0.0001 is not exact in binary, and must not be printed as 0.00010000000000000002.
        let bound = |power: usize| (self.first << power) as f64 / (1.0 / unit).round();
        let bounds = (0..counts.len() - 1).map(bound).chain([f64::MAX]);
        let buckets: Vec<_> = bounds.zip(counts.iter().copied()).collect();
        let sum = self.sum.load(Ordering::Relaxed) as f64 * unit;
        encoder.encode_histogram::<NoLabelSet>(sum, counts.iter().sum(), &buckets, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_is_in_the_bucket_of_the_least_bound_that_it_does_not_exceed() {
        for (amount, bucket) in
            [(0, 0), (1, 0), (10, 0), (11, 1), (20, 1), (21, 2), (40, 2), (41, 3), (u64::MAX / 2, 3)]
        {
            let amounts = DoublingHistogram::new(10, 3);
            amounts.add(amount);
            assert_eq!(amounts.buckets[bucket].load(Ordering::Relaxed), 1, "{amount}");
            assert_eq!(amounts.count(), 1);
        }
    }
}
