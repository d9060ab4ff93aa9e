//! Clocks: one that includes the time for which the machine is suspended, for leases, and the time of day.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use rustix::time::{ClockId, clock_gettime};

/// A point in time on this machine's clock; meaningless on other machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(Duration);

impl Moment {
    /// Returns the moment `elapsed` after the clock's start.
    pub fn since_start(elapsed: Duration) -> Self {
        Self(elapsed)
    }

    /// Returns the time from `earlier` to this moment; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    pub(crate) fn elapsed(self) -> Duration {
        self.0
    }
}

impl std::ops::Add<Duration> for Moment {
    type Output = Self;

    fn add(self, time: Duration) -> Self {
        Self(self.0.saturating_add(time))
    }
}

/// A source of the current time. Tests bring their own.
pub trait Clock: Send + Sync + 'static {
    /// Returns the current time, which never decreases.
    fn now(&self) -> Moment;
}

/// The time since the machine booted, including suspends.
///
/// [`std::time::Instant`] stops while the machine is suspended: by that clock, a lease that another replica took over during
/// the night would still be valid in the morning.
#[derive(Clone, Copy, Debug, Default)]
pub struct Boottime;

impl Clock for Boottime {
    fn now(&self) -> Moment {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        let clock = ClockId::Boottime;
        // On other systems this clock includes suspends, as on macOS, or no clock does.
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        let clock = ClockId::Monotonic;
        let time = clock_gettime(clock);
        Moment(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
    }
}

/// Returns the machine's [`Boottime`] clock.
pub fn boottime() -> Arc<dyn Clock> {
    Arc::new(Boottime)
}

/// The time of day, or that of a test.
#[derive(Clone)]
pub(crate) struct WallClock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl WallClock {
    pub(crate) fn new(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    pub(crate) fn now(&self) -> Timestamp {
        (self.0)()
    }
}

impl Default for WallClock {
    fn default() -> Self {
        Self::new(Timestamp::now)
    }
}
