//! A limit on log lines that repeat.

use std::time::{Duration, Instant};

/// A limit on repeated log lines: admits the first, and then one per interval.
#[derive(Debug)]
pub struct LogThrottle {
    interval: Duration,
    last: Option<Instant>,
}

impl LogThrottle {
    /// Returns a throttle that admits one line per `interval`.
    pub fn every(interval: Duration) -> Self {
        Self { interval, last: None }
    }

    /// Returns whether a line may be logged at `now`, and if so starts the next interval.
    pub fn admits(&mut self, now: Instant) -> bool {
        let admits = self.last.is_none_or(|last| now.duration_since(last) >= self.interval);
        if admits {
            self.last = Some(now);
        }
        admits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_is_admitted_and_then_one_in_each_interval() {
        let mut throttle = LogThrottle::every(Duration::from_mins(1));
        let start = Instant::now();
        let admitted: Vec<u64> =
            (0..150).filter(|second| throttle.admits(start + Duration::from_secs(*second))).collect();
        assert_eq!(admitted, [0, 60, 120]);
    }
}
