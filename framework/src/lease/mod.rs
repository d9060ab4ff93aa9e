//! One of several replicas works, the others stand by: leader election with a `Lease`, and a fence that ends the work in time.
//!
//! The protocol is client-go's, so that replicas of both kinds understand each other: who holds the lease renews it, and who sees it
//! unchanged for as long as it says takes it over. What one replica compares with another is never a time of day, only how long it itself
//! has watched the same record: clocks may be hours apart.
//!
//! What client-go leaves open is the holder that does not notice in time: a process that was stopped, a machine that was suspended, a request
//! that was slow. Here every request of the work passes a [`Fence`], which is open for [`Settings::work`] from *before* the request that
//! renewed the lease was sent, on a clock that goes on while the machine sleeps. Others wait at least [`Settings::duration`] from
//! when they *saw* that renewal, which is later; the difference of the two is what requests under way have to end.
//!
//! [`Election`] does it; [`candidate`] decides, without clock and network. A lost lease closes the fence; the
//! [manager](crate::Manager) cancels what is being reconciled and stands by, with its caches warm.

#[cfg(test)]
mod alone;
pub mod candidate;
mod election;
mod fence;
#[cfg(test)]
mod simulation;

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

pub use self::election::{Election, Role};
pub use self::fence::{Closed, Fence};

/// Which lease, and how long it lasts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The lease's namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Who we are. It must be another one for every process, also for one that follows another in the same pod.
    pub identity: String,
    /// How long others leave an unchanged lease alone. A takeover after a crash takes at most this and one [`Self::every`].
    pub duration: Duration,
    /// How long after the last renewal work goes on; less than `duration`, and the difference is what slow requests and clocks that run at
    /// different speeds may use up.
    pub work: Duration,
    /// How often it is renewed, or looked at.
    pub every: Duration,
}

/// Times that make no sense together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a lease of {duration:?} with work for {work:?} and a renewal every {every:?}: each must be longer than the next, the first in whole seconds and less than 68 years"
)]
pub struct Unsafe {
    duration: Duration,
    work: Duration,
    every: Duration,
}

impl Settings {
    /// A lease with client-go's times (15, 10 and 2 seconds). The identity is the machine's name, for people, and something random.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
            identity: unique_identity(),
            duration: Duration::from_secs(15),
            work: Duration::from_secs(10),
            every: Duration::from_secs(2),
        }
    }

    /// Refuses times with which two could work at once, or none for long.
    ///
    /// # Errors
    /// [`Unsafe`] says which.
    pub fn check(&self) -> Result<(), Unsafe> {
        let Self { duration, work, every, .. } = *self;
        let can_be_written = duration.subsec_nanos() == 0 && i32::try_from(duration.as_secs()).is_ok();
        if duration > work && work > every && !every.is_zero() && can_be_written {
            return Ok(());
        }
        Err(Unsafe { duration, work, every })
    }
}

/// As client-go makes them. Neither a process id nor a pod's name would do: containers all have the same ids, and a container that is
/// started again has its pod's name again.
fn unique_identity() -> String {
    // Each has keys of its own, from the system's random numbers.
    let random = || RandomState::new().hash_one(std::process::id());
    let system = rustix::system::uname();
    format!("{}_{:016x}{:016x}", system.nodename().to_string_lossy(), random(), random())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_have_one_identity() {
        let [one, other] = [(); 2].map(|()| Settings::new("x", "y").identity);
        assert_ne!(one, other);
        assert!(one.rsplit_once('_').is_some_and(|(host, random)| !host.is_empty() && random.len() == 32), "{one}");
    }

    #[test]
    fn times_with_which_two_could_work_at_once_are_refused() {
        let settings = Settings::new("x", "y");
        assert_eq!(settings.check(), Ok(()));
        let seconds = Duration::from_secs;
        for (duration, work, every) in [
            (seconds(15), seconds(15), seconds(2)),
            (seconds(15), seconds(10), seconds(10)),
            (seconds(15), seconds(10), seconds(0)),
            (Duration::from_millis(15_500), seconds(10), seconds(2)),
            // Nobody could write it into a lease.
            (seconds(1 << 31), seconds(10), seconds(2)),
        ] {
            assert!(
                Settings { duration, work, every, ..settings.clone() }.check().is_err(),
                "{duration:?} {work:?} {every:?}"
            );
        }
    }
}
