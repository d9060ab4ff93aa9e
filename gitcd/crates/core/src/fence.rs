//! The fence of a writer: whether this server may still acknowledge writes.
//!
//! A writer with a lease (`gitcd::pull::lease`) acknowledges nothing after its lease has ended. Everything that reports writes to
//! clients asks the [`Fence`], which costs one atomic load and one read of a clock that runs while the machine is suspended.
//!
//! ```
//! use std::time::Duration;
//! use gitcd_core::fence::{Fence, Moment};
//!
//! let fence = Fence::default();
//! assert!(!fence.is_open());
//! fence.open_until(Moment::now() + Duration::from_secs(60));
//! assert!(fence.is_open());
//! fence.close_for_good();
//! fence.open_until(Moment::now() + Duration::from_secs(60));
//! assert!(!fence.is_open());
//! ```

use std::ops::Add;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Counts time that the machine is suspended, and is never set.
#[cfg(any(target_os = "linux", target_os = "android"))]
const CLOCK: ClockId = ClockId::Boottime;
/// On other systems the monotonic clock has these properties.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const CLOCK: ClockId = ClockId::Monotonic;

/// A moment on this machine's clock, in nanoseconds since boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(u64);

impl Moment {
    /// Returns the current moment.
    pub fn now() -> Self {
        let now = clock_gettime(CLOCK);
        Self((now.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(now.tv_nsec as u64))
    }

    /// Returns the moment this long after the clock's start.
    pub fn of(since: Duration) -> Self {
        Self(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }

    /// Returns the time since an earlier moment; zero if `earlier` is not earlier.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, time: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// The writer's fence: open while its lease lasts.
#[derive(Debug, Default)]
pub struct Fence {
    until: AtomicU64,
    /// How often it was reopened.
    openings: AtomicU64,
    is_closed_for_good: AtomicBool,
}

impl Fence {
    /// Returns whether writes may be reported to clients at this moment.
    #[inline]
    pub fn is_open(&self) -> bool {
        Moment::now().0 < self.until.load(Ordering::Acquire)
    }

    /// Opens the fence, or extends it. Returns whether it was closed before.
    pub fn open_until(&self, until: Moment) -> bool {
        if self.is_closed_for_good.load(Ordering::Acquire) || until <= Moment::now() {
            return false;
        }
        let was_closed = !self.is_open();
        if was_closed {
            // Counted before the fence opens: a connection made while it was closed loses its exemption before any write can be
            // acknowledged.
            self.openings.fetch_add(1, Ordering::AcqRel);
        }
        self.until.store(until.0, Ordering::Release);
        was_closed
    }

    /// Closes the fence; it cannot be opened again.
    pub fn close_for_good(&self) {
        self.is_closed_for_good.store(true, Ordering::Release);
        self.close();
    }

    /// Returns whether the fence was closed for good.
    pub fn is_closed_for_good(&self) -> bool {
        self.is_closed_for_good.load(Ordering::Acquire)
    }

    /// Returns how long the fence stays open.
    pub fn remaining(&self) -> Duration {
        Moment(self.until.load(Ordering::Acquire)).since(Moment::now())
    }

    /// Closes the fence until it is opened again.
    pub fn close(&self) {
        self.until.store(0, Ordering::Release);
    }

    fn openings(&self) -> u64 {
        self.openings.load(Ordering::Acquire)
    }
}

/// A connection's fence token.
///
/// Answers may still be in buffers when the lease ends. So a connection that saw the fence open is cut when it closes, and its
/// client knows that the outcome is unknown. A connection made since then has only received answers that need no lease, and
/// stays.
#[derive(Debug)]
pub struct FenceToken {
    fence: std::sync::Arc<Fence>,
    /// If the fence was closed when the connection was made: its count of openings then.
    closed_after: Option<u64>,
}

impl FenceToken {
    /// Returns the token of a new connection.
    pub fn new(fence: std::sync::Arc<Fence>) -> Self {
        // Read the count first: if the fence opens in between, the token has an outdated count.
        let openings = fence.openings();
        let closed_after = (!fence.is_open()).then_some(openings);
        Self { fence, closed_after }
    }

    /// Returns whether the connection may be written to now.
    #[inline]
    pub fn is_good(&self) -> bool {
        self.fence.is_open() || self.closed_after == Some(self.fence.openings())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const LONG: Duration = Duration::from_hours(1);

    #[test]
    fn a_gate_closes_by_itself_and_can_be_opened_again() {
        let fence = Fence::default();
        assert!(!fence.is_open() && fence.remaining().is_zero());
        assert!(fence.open_until(Moment::now() + LONG) && fence.is_open());
        assert!(!fence.open_until(Moment::now() + LONG), "it was open");
        assert!(fence.remaining() > LONG / 2);
        assert!(!fence.open_until(Moment::default()), "a lease that has ended opens nothing, and closes nothing");
        fence.until.store(1, Ordering::Release);
        assert!(!fence.is_open());
        assert!(fence.open_until(Moment::now() + LONG));
    }

    #[test]
    fn only_connections_that_never_carried_an_acknowledgement_outlive_the_lease() {
        let fence = Arc::new(Fence::default());
        let before = FenceToken::new(fence.clone());
        assert!(before.is_good(), "no write was acknowledged yet");
        fence.open_until(Moment::now() + LONG);
        let during = FenceToken::new(fence.clone());
        assert!(before.is_good() && during.is_good());
        fence.until.store(1, Ordering::Release);
        let after = FenceToken::new(fence.clone());
        assert!(!before.is_good() && !during.is_good() && after.is_good());
        fence.open_until(Moment::now() + LONG);
        assert!(before.is_good() && during.is_good() && after.is_good());
        fence.close_for_good();
        assert!(!before.is_good() && !during.is_good() && !after.is_good());
        assert!(FenceToken::new(fence).is_good());
    }

    #[test]
    fn the_clock_goes_on() {
        let start = Moment::now();
        while Moment::now() == start {}
        assert!(Moment::now() > start && start.since(Moment::now()).is_zero());
        assert_eq!(Moment::of(Duration::from_nanos(5)) + Duration::from_nanos(6), Moment(11));
    }
}
