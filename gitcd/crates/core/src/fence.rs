//! Whether this server may still say that it has written something.
//!
//! A writer with a lease (`gitcd::pull::lease`) acknowledges nothing after its lease has ended. Everything that tells clients of writes
//! asks the [`Gate`]: one atomic load, and one look at a clock that goes on while the machine sleeps.
//!
//! ```
//! use std::time::Duration;
//! use gitcd_core::fence::{Gate, Moment};
//!
//! let gate = Gate::default();
//! assert!(!gate.is_open());
//! gate.open_until(Moment::now() + Duration::from_secs(60));
//! assert!(gate.is_open());
//! gate.close_for_good();
//! gate.open_until(Moment::now() + Duration::from_secs(60));
//! assert!(!gate.is_open());
//! ```

use std::ops::Add;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Counts the time that the machine sleeps, too, and is never set.
#[cfg(any(target_os = "linux", target_os = "android"))]
const CLOCK: ClockId = ClockId::Boottime;
/// Elsewhere this one does.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const CLOCK: ClockId = ClockId::Monotonic;

/// A moment on this machine's clock, in nanoseconds since it was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(u64);

impl Moment {
    /// This moment.
    pub fn now() -> Self {
        let now = clock_gettime(CLOCK);
        Self((now.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(now.tv_nsec as u64))
    }

    /// A moment so long after the clock began.
    pub fn of(since: Duration) -> Self {
        Self(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }

    /// How long after an earlier moment this is; nothing if it is not later.
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

/// Open while the lease lasts.
#[derive(Debug, Default)]
pub struct Gate {
    until: AtomicU64,
    /// How often it was opened after it had been closed.
    openings: AtomicU64,
    is_closed_for_good: AtomicBool,
}

impl Gate {
    /// Whether clients may be told of writes at this moment.
    #[inline]
    pub fn is_open(&self) -> bool {
        Moment::now().0 < self.until.load(Ordering::Acquire)
    }

    /// Keeps it open, or opens it again. Tells whether it was closed before.
    pub fn open_until(&self, until: Moment) -> bool {
        if self.is_closed_for_good.load(Ordering::Acquire) || until <= Moment::now() {
            return false;
        }
        let was_closed = !self.is_open();
        if was_closed {
            // First: who was let in while it was closed must not take anything out from now on once it is closed again.
            self.openings.fetch_add(1, Ordering::AcqRel);
        }
        self.until.store(until.0, Ordering::Release);
        was_closed
    }

    /// Closes it, whatever anybody says later.
    pub fn close_for_good(&self) {
        self.is_closed_for_good.store(true, Ordering::Release);
        self.close();
    }

    /// Whether it was closed for good.
    pub fn is_closed_for_good(&self) -> bool {
        self.is_closed_for_good.load(Ordering::Acquire)
    }

    /// How long it stays open.
    pub fn remaining(&self) -> Duration {
        Moment(self.until.load(Ordering::Acquire)).since(Moment::now())
    }

    /// Closes it until it is opened again.
    pub fn close(&self) {
        self.until.store(0, Ordering::Release);
    }

    fn openings(&self) -> u64 {
        self.openings.load(Ordering::Acquire)
    }
}

/// What a connection needs to be written to.
///
/// An answer may be on its way through buffers when the lease ends. So a connection that was open before is not written to any more: it is
/// cut, and its client finds out that it does not know. One that was made since then has only ever been told what is told without a lease.
#[derive(Debug)]
pub struct Pass {
    gate: std::sync::Arc<Gate>,
    /// If the gate was closed when the connection was made: how often it had been opened.
    closed_after: Option<u64>,
}

impl Pass {
    /// For a new connection.
    pub fn new(gate: std::sync::Arc<Gate>) -> Self {
        // In this order: an opening in between makes the number an old one.
        let openings = gate.openings();
        let closed_after = (!gate.is_open()).then_some(openings);
        Self { gate, closed_after }
    }

    /// Whether the connection may be written to now.
    #[inline]
    pub fn is_good(&self) -> bool {
        self.gate.is_open() || self.closed_after == Some(self.gate.openings())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const LONG: Duration = Duration::from_hours(1);

    #[test]
    fn a_gate_closes_by_itself_and_can_be_opened_again() {
        let gate = Gate::default();
        assert!(!gate.is_open() && gate.remaining().is_zero());
        assert!(gate.open_until(Moment::now() + LONG) && gate.is_open());
        assert!(!gate.open_until(Moment::now() + LONG), "it was open");
        assert!(gate.remaining() > LONG / 2);
        assert!(!gate.open_until(Moment::default()), "a lease that has ended opens nothing, and closes nothing");
        gate.until.store(1, Ordering::Release);
        assert!(!gate.is_open());
        assert!(gate.open_until(Moment::now() + LONG));
    }

    #[test]
    fn only_connections_that_never_carried_an_acknowledgement_outlive_the_lease() {
        let gate = Arc::new(Gate::default());
        let before = Pass::new(gate.clone());
        assert!(before.is_good(), "nothing was acknowledged yet");
        gate.open_until(Moment::now() + LONG);
        let during = Pass::new(gate.clone());
        assert!(before.is_good() && during.is_good());
        gate.until.store(1, Ordering::Release);
        let after = Pass::new(gate.clone());
        assert!(!before.is_good() && !during.is_good() && after.is_good());
        gate.open_until(Moment::now() + LONG);
        assert!(before.is_good() && during.is_good() && after.is_good());
        gate.close_for_good();
        assert!(!before.is_good() && !during.is_good() && !after.is_good());
        assert!(Pass::new(gate).is_good());
    }

    #[test]
    fn the_clock_goes_on() {
        let start = Moment::now();
        while Moment::now() == start {}
        assert!(Moment::now() > start && start.since(Moment::now()).is_zero());
        assert_eq!(Moment::of(Duration::from_nanos(5)) + Duration::from_nanos(6), Moment(11));
    }
}
