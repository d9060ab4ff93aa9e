//! A clock that goes on while the machine sleeps.

use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A point on the clock of this machine; means nothing on others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(Duration);

impl Moment {
    /// So long after the clock's beginning.
    pub fn since_start(elapsed: Duration) -> Self {
        Self(elapsed)
    }

    /// The time from `earlier` until this; zero if that is later.
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

/// Tells the time. Tests bring their own.
pub trait Clock: Send + Sync + 'static {
    /// Never less than it was.
    fn now(&self) -> Moment;
}

/// The time since this machine was started, sleep included.
///
/// [`std::time::Instant`] stands still while a machine is suspended: by it, a lease that others took over during a night's sleep
/// would still be good in the morning.
#[derive(Clone, Copy, Debug, Default)]
pub struct Boottime;

impl Clock for Boottime {
    fn now(&self) -> Moment {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        let clock = ClockId::Boottime;
        // Elsewhere this is the one that counts sleep, as on macOS, or there is none.
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        let clock = ClockId::Monotonic;
        let time = clock_gettime(clock);
        Moment(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
    }
}

/// The clock that this machine has.
pub fn boottime() -> Arc<dyn Clock> {
    Arc::new(Boottime)
}
