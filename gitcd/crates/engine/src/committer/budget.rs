//! When to write the open pack.

use std::time::{Duration, Instant};

use gitcd_repo::branch::Pending;

/// Minimum time between two packs.
pub(super) const MIN_FLUSH_INTERVAL: Duration = Duration::from_secs(1);
/// No write waits longer than this for a pack, whatever the pack costs. A directory of 50,000 entries takes 1.1 MB whole: the
/// rate allows that every 43 seconds on a quiet branch. Meanwhile the journal has the write.
const MAX_LAG: Duration = Duration::from_mins(1);
/// Limit of the bytes that values, deltas and commits earn for directories. Half of the credit expires in the half-life, so that
/// a quiet branch keeps to its rate.
const MAX_CREDIT_BYTES: f64 = (4 << 20) as f64;
const CREDIT_HALF_LIFE: Duration = Duration::from_secs(2);
/// Bytes that each of many changes earns for directories, besides its content in the pack: the journal has written about as much
/// for it. Without this, many new keys, for which most of the metadata must be written again, would wait for most of a minute.
const OF_A_CHANGE: usize = 1024;
/// Changes in a pack that earn nothing: a quiet branch keeps to its rate.
const FEW: usize = 64;
/// Share of a burst's bytes that is reserved for its end, when few values are left to write, but large directories must be
/// written with them.
const RESERVED: f64 = 0.25;
/// The same share of what its changes earn.
const RESERVED_OF_CHANGES: f64 = 0.5;
const MAX_RESERVE_BYTES: f64 = (16 << 20) as f64;
const RESERVE_HALF_LIFE: Duration = Duration::from_secs(4);
/// Age of the oldest write from which the reserve is used.
const RESERVE_AFTER: Duration = Duration::from_secs(3);

/// Keeps directories that have to be written whole within their share of the disk: a pack is late if they are most of it, and on
/// time if its other content is large in comparison.
#[derive(Debug)]
pub(super) struct Budget {
    /// Bytes per second for directories.
    rate: f64,
    last_flush: Instant,
    /// Bytes that the last flush left over.
    credit: f64,
    /// Bytes reserved for the end of a burst.
    reserve: f64,
}

impl Budget {
    pub(super) fn new(bytes_per_second: u64, now: Instant) -> Self {
        Self { rate: bytes_per_second.max(1) as f64, last_flush: now, credit: 0.0, reserve: 0.0 }
    }

    /// Returns when the last pack was written.
    pub(super) fn last_flush(&self) -> Instant {
        self.last_flush
    }

    /// Returns when to write a pack whose oldest revision was staged at `oldest`.
    pub(super) fn due_at(&self, pending: &Pending, oldest: Instant, now: Instant) -> Instant {
        let unpaid = (-self.balance(pending, now)).max(0.0);
        let paid_at = Duration::try_from_secs_f64(unpaid / self.rate)
            .ok()
            .and_then(|wait| self.last_flush.checked_add(wait))
            .unwrap_or(oldest + MAX_LAG);
        let enough = unpaid <= self.reserve(pending, now);
        let at_last = oldest + if enough { RESERVE_AFTER } else { MAX_LAG };
        paid_at.min(at_last).max(oldest + MIN_FLUSH_INTERVAL)
    }

    /// Accounts for a flush of `pending` from `started` to `ended`.
    pub(super) fn flushed(&mut self, pending: &Pending, started: Instant, ended: Instant) {
        let balance = self.balance(pending, started);
        let since = started - self.last_flush;
        let overdrawn = (-balance - since.as_secs_f64() * self.rate).max(0.0);
        self.reserve = (self.reserve(pending, started) - overdrawn).clamp(0.0, MAX_RESERVE_BYTES);
        self.credit = balance.clamp(0.0, MAX_CREDIT_BYTES);
        self.last_flush = ended;
    }

    fn reserve(&self, pending: &Pending, now: Instant) -> f64 {
        let reserved = pending.useful_bytes as f64 * RESERVED + of_changes(pending) * RESERVED_OF_CHANGES;
        remaining(self.reserve, RESERVE_HALF_LIFE, now - self.last_flush) + reserved
    }

    /// Returns the credit after a flush, without what the time since the last one earns. It is negative if directories and leaves
    /// that must be written whole cost more than the other content and the remaining credit allow.
    fn balance(&self, pending: &Pending, now: Instant) -> f64 {
        let left = remaining(self.credit, CREDIT_HALF_LIFE, now - self.last_flush);
        left + pending.useful_bytes as f64 / 2.0 + of_changes(pending) - pending.overhead_bytes as f64
    }
}

fn of_changes(pending: &Pending) -> f64 {
    (pending.changes.saturating_sub(FEW) * OF_A_CHANGE) as f64
}

fn remaining(amount: f64, half_life: Duration, time: Duration) -> f64 {
    amount * 0.5_f64.powf(time.as_secs_f64() / half_life.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: u64 = 26 << 10;

    /// Values of [`TRICKLE`] bytes.
    fn pending(useful_bytes: usize, overhead_bytes: usize) -> Pending {
        Pending { pack_bytes: useful_bytes, commits: 1, changes: useful_bytes / TRICKLE, overhead_bytes, useful_bytes }
    }

    /// Simulates a branch under load whose directories and metadata take `directories` bytes in every pack.
    struct Load {
        budget: Budget,
        now: Instant,
        directories: usize,
        useful: usize,
        oldest: Option<Instant>,
    }

    impl Load {
        fn new(directories: usize) -> Self {
            let now = Instant::now();
            Self { budget: Budget::new(RATE, now), now, directories, useful: 0, oldest: None }
        }

        /// Simulates `time`. Returns the longest lag of a write behind its pack, and the number of packs.
        fn run(&mut self, time: Duration, bytes_per_second: usize) -> (Duration, u32) {
            let (end, mut most, mut packs) = (self.now + time, Duration::ZERO, 0);
            while self.now < end {
                self.now += Duration::from_millis(50);
                self.useful += bytes_per_second / 20;
                let oldest = *self.oldest.get_or_insert(self.now);
                let open = pending(self.useful, self.directories);
                most = most.max(self.now - oldest);
                if self.budget.due_at(&open, oldest, self.now) <= self.now {
                    self.budget.flushed(&open, self.now, self.now);
                    (self.oldest, self.useful, packs) = (None, 0, packs + 1);
                }
            }
            (most, packs)
        }
    }

    const TEN_MINUTES: Duration = Duration::from_mins(10);
    const TRICKLE: usize = 700;
    const BURST: usize = 5 << 20;

    #[test]
    fn a_quiet_branch_keeps_to_its_rate() {
        for (directories, most) in [(200_000, 10), (1_100_000, 50)] {
            let (lag, packs) = Load::new(directories).run(TEN_MINUTES, TRICKLE);
            assert!(lag <= Duration::from_secs(most), "{directories} bytes of directories: {lag:?}");
            assert!(u64::from(packs) * directories as u64 <= 600 * RATE + directories as u64, "{packs} packs");
        }
    }

    #[test]
    fn directories_larger_than_the_rate_allows_are_written_in_bounded_time() {
        let (lag, packs) = Load::new(4 << 20).run(TEN_MINUTES, TRICKLE);
        assert!(lag <= MAX_LAG, "{lag:?}");
        assert!(packs <= 11, "{packs} packs");
    }

    #[test]
    fn the_end_of_a_burst_does_not_wait_for_its_directories() {
        for directories in [100 << 10, 1 << 20, 4 << 20, 8 << 20] {
            let mut load = Load::new(directories);
            let (lag, _) = load.run(Duration::from_secs(30), BURST);
            assert!(lag <= Duration::from_secs(4), "{directories} bytes of directories: {lag:?} in the burst");
            // The rest of the burst is written although little follows.
            let (_, packs) = load.run(Duration::from_secs(4), 10_000);
            assert!(packs > 0, "{directories} bytes of directories");
        }
    }

    /// Values of which little is left when compressed, and new keys, which change the metadata everywhere.
    #[test]
    fn many_small_changes_are_written_in_time_and_so_are_the_last_ones() {
        for per_second in [2_000, 10_000, 20_000] {
            let (mut budget, mut now) = (Budget::new(RATE, Instant::now()), Instant::now());
            let (mut oldest, mut changes, mut most) = (None, 0, Duration::ZERO);
            for step in 0..20 * 20 {
                now += Duration::from_millis(50);
                // The last changes come after ten seconds.
                if step < 10 * 20 {
                    changes += per_second / 20;
                    oldest.get_or_insert(now);
                }
                let Some(first) = oldest else { continue };
                most = most.max(now - first);
                let (overhead_bytes, useful_bytes) = ((changes * 4096).min(6 << 20), changes * 150);
                let open = Pending { pack_bytes: useful_bytes, commits: 1, changes, overhead_bytes, useful_bytes };
                if budget.due_at(&open, first, now) <= now {
                    budget.flushed(&open, now, now);
                    (oldest, changes) = (None, 0);
                }
            }
            assert!(most <= Duration::from_secs(6), "{per_second} changes a second: {most:?}");
            assert_eq!(oldest, None, "{per_second} changes a second: the last ones wait");
        }
    }

    #[test]
    fn a_burst_pays_for_no_more_than_its_end() {
        let mut load = Load::new(200_000);
        load.run(Duration::from_secs(30), BURST);
        let (_, packs) = load.run(TEN_MINUTES, TRICKLE);
        let spent = f64::from(packs) * 200_000.0;
        assert!(spent <= (600 * RATE) as f64 + 30.0 * BURST as f64 / 50.0, "{packs} packs");
    }
}
