//! Leader election with a `Lease`, and a fence that stops the work of a former leader in time.
//!
//! The protocol is client-go's, so replicas of both kinds interoperate: the holder renews the lease, and a replica that has
//! seen it unchanged for its duration acquires it. Replicas never compare times of day, only how long they have seen the same
//! record: clocks may be hours apart.
//!
//! client-go does not handle a holder that notices too late: a process that was stopped, a machine that was suspended, a
//! request that was slow. Here every request of the work passes a [`Fence`], which is open for [`Settings::work`] from
//! *before* the renewal was sent, on a clock that includes suspends. Others wait at least [`Settings::duration`] from when
//! they *saw* that renewal, which is later; the difference is the time that requests in flight have to finish.
//!
//! [`Election`] runs the protocol; [`candidate`] decides, without clock and network. A lost lease closes the fence; the
//! [manager](crate::Manager) cancels running reconciles and stands by, with warm caches.
//!
//! A program without a manager runs the election itself:
//!
//! ```no_run
//! use trishanku_framework::clock;
//! use trishanku_framework::lease::{Election, Role, Settings};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let client = kube::Client::try_default().await?;
//! let election = Election::new(client, Settings::new("default", "tank"), clock::boottime())?;
//! let (fence, mut role) = (election.fence(), election.role());
//! let running = tokio::spawn(election.run(async { drop(tokio::signal::ctrl_c().await) }));
//! role.wait_for(|role| *role != Role::Standby).await?;
//! // Check the fence before each write: it closes before another replica can acquire the lease.
//! println!("leading, for {:?} at least", fence.left());
//! running.await?;
//! # Ok(())
//! # }
//! ```

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
pub use self::fence::Fence;
pub use crate::error::Closed;

/// The lease of an election, and its durations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The lease's namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Identity of the replica. It must be unique to the process, even among successive processes in the same pod.
    pub identity: String,
    /// How long others wait while the lease does not change. A takeover after a crash takes at most this plus one
    /// [`Self::every`].
    pub duration: Duration,
    /// How long work continues after the last renewal. Less than `duration`: the difference is the margin for slow requests
    /// and for clocks that run at different speeds.
    pub work: Duration,
    /// Interval of renewals, and of checks while another replica leads.
    pub every: Duration,
}

/// Durations that contradict each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "duration {duration:?}, work {work:?}, renewal interval {every:?}: each must be longer than the next; the duration in whole seconds, below 68 years"
)]
pub struct Unsafe {
    duration: Duration,
    work: Duration,
    every: Duration,
}

impl Settings {
    /// Creates settings with client-go's durations (15, 10 and 2 seconds). The identity is the hostname, for readers, and a
    /// random part.
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

    /// Rejects durations with which two replicas could work at once, or none for long.
    ///
    /// # Errors
    /// [`Unsafe`], with the durations.
    pub fn check(&self) -> Result<(), Unsafe> {
        let Self { duration, work, every, .. } = *self;
        let can_be_written = duration.subsec_nanos() == 0 && i32::try_from(duration.as_secs()).is_ok();
        if duration > work && work > every && !every.is_zero() && can_be_written {
            return Ok(());
        }
        Err(Unsafe { duration, work, every })
    }
}

/// Creates an identity as client-go does. Neither a process id nor a pod's name is unique: containers all have the same ids,
/// and a restarted container has its pod's name again.
fn unique_identity() -> String {
    // Each state has keys of its own, from the system's random numbers.
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
            // A lease cannot contain it.
            (seconds(1 << 31), seconds(10), seconds(2)),
        ] {
            assert!(
                Settings { duration, work, every, ..settings.clone() }.check().is_err(),
                "{duration:?} {work:?} {every:?}"
            );
        }
    }
}
