//! Delays between retries of a failing object.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

/// Delays that double with every consecutive failure, up to a limit.
///
/// The delay after the n-th failure is `first * 2^(n-1)`, at most `most`, less up to a quarter, so that objects that fail
/// together are not retried together. The quarter depends only on the object and n, so a test sees the same delays every
/// time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// Delay after the first failure.
    pub first: Duration,
    /// Longest delay.
    pub most: Duration,
}

impl Default for Backoff {
    /// From 200 ms to 5 minutes, which the twelfth consecutive failure reaches.
    fn default() -> Self {
        Self { first: Duration::from_millis(200), most: Duration::from_mins(5) }
    }
}

impl Backoff {
    /// Returns the delay after this number of consecutive failures, at least one, of the object `of`.
    pub fn delay(&self, failures: u32, of: &impl Hash) -> Duration {
        let doublings = failures.saturating_sub(1).min(u32::BITS - 1);
        let full = self.first.saturating_mul(1 << doublings).min(self.most);
        let mut hasher = DefaultHasher::new();
        (failures, of).hash(&mut hasher);
        let quarters = full / 4 / 256;
        full.saturating_sub(quarters * (hasher.finish() % 256) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_bound_and_lose_at_most_a_quarter() {
        let backoff = Backoff { first: Duration::from_millis(100), most: Duration::from_secs(10) };
        for (failures, full) in
            [(1, 100), (2, 200), (3, 400), (7, 6_400), (8, 10_000), (40, 10_000), (u32::MAX, 10_000)]
        {
            let full = Duration::from_millis(full);
            let delay = backoff.delay(failures, &"an object");
            assert!(delay <= full && delay >= full * 3 / 4, "{failures}: {delay:?}");
            assert_eq!(delay, backoff.delay(failures, &"an object"));
        }
    }

    #[test]
    fn objects_that_fail_together_come_back_at_different_times() {
        let backoff = Backoff::default();
        let delays: std::collections::BTreeSet<_> = (0..100).map(|object| backoff.delay(5, &object)).collect();
        assert!(delays.len() > 50, "{}", delays.len());
    }
}
