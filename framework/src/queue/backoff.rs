//! How long to leave an object alone that failed several times in a row.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

/// Delays that double with every failure in a row, up to a bound.
///
/// The delay after the n-th failure is `first * 2^(n-1)`, at most `most`, less up to a quarter: objects that fail together do not come
/// back together. The quarter depends on the object and on n only, so that a test sees the same delays every time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// After the first failure.
    pub first: Duration,
    /// The longest.
    pub most: Duration,
}

impl Default for Backoff {
    /// From 200 ms to 5 minutes: eleven failures in a row until it is reached.
    fn default() -> Self {
        Self { first: Duration::from_millis(200), most: Duration::from_mins(5) }
    }
}

impl Backoff {
    /// The delay after that many failures in a row, at least one, for the object `of`.
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
