//! Acquires, renews and releases the lease.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use tokio::sync::watch;

use super::candidate::{Candidate, Record, Step};
use super::{Fence, Settings, Unsafe};
use crate::clock::Clock;
use crate::error::chain;
use crate::metrics::{LeaseMetrics, Metrics};

/// The role of this replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Another replica leads, or the leader is unknown.
    Standby,
    /// This replica leads, for the n-th time since its start.
    Leading {
        /// Starts at 1.
        term: u64,
    },
}

/// A replica's part in an election. Does nothing before [`run`](Self::run).
pub struct Election {
    api: Api<Lease>,
    settings: Settings,
    clock: Arc<dyn Clock>,
    fence: Fence,
    role: watch::Sender<Role>,
    terms: AtomicU64,
    metrics: LeaseMetrics,
}

/// What is known about the lease.
enum Held {
    /// It is not ours.
    No,
    /// It may be ours: a request is in flight, or its response was lost.
    Unknown,
    /// It is ours, with its last content.
    Lease(Box<Lease>),
}

/// Outcome of an attempt to acquire or renew the lease.
enum Attempt {
    Held(Box<Lease>),
    Others,
}

impl Election {
    /// Creates an election. `client` is for the lease itself: it must not be behind the fence.
    ///
    /// # Errors
    /// [`Unsafe`] if two replicas with these durations could work at once.
    pub fn new(client: Client, settings: Settings, clock: Arc<dyn Clock>) -> Result<Self, Unsafe> {
        settings.check()?;
        let api = Api::namespaced(client, &settings.namespace);
        let (role, _) = watch::channel(Role::Standby);
        let (fence, metrics) = (Fence::new(clock.clone()), LeaseMetrics::default());
        Ok(Self { api, settings, fence, clock, role, terms: AtomicU64::new(0), metrics })
    }

    /// Uses a fence that exists already. It must be closed, and have the clock of the election.
    pub(crate) fn with_fence(mut self, fence: Fence) -> Self {
        self.fence = fence;
        self
    }

    pub(crate) fn counted(mut self, metrics: &Metrics) -> Self {
        self.metrics = metrics.of_lease(&self.settings.name);
        self
    }

    /// Returns the fence, which every request of the work must pass.
    pub fn fence(&self) -> Fence {
        self.fence.clone()
    }

    /// Returns a receiver of the role. When it reports a loss, the fence is already closed.
    pub fn role(&self) -> watch::Receiver<Role> {
        self.role.subscribe()
    }

    /// Takes part until `stop` completes, then closes the fence and releases the lease, so that another replica acquires it
    /// within one renewal interval. Stop the work first. If a write was dropped without a response, the lease is kept until
    /// that write can no longer take effect.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let mut held = Held::No;
        tokio::select! {
            () = self.hold(&mut held) => {}
            () = self.watch_over() => {}
            () = stop => {}
        }
        self.fence.close();
        self.stand_by("stopped");
        let known = match held {
            Held::No => return,
            // A write in flight may have succeeded.
            Held::Unknown => None,
            Held::Lease(lease) => Some(*lease),
        };
        self.let_end().await;
        match tokio::time::timeout(self.settings.work / 2, self.release(known)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(
                    lease = self.settings.name,
                    error = chain(&error),
                    "cannot release the lease; it will expire"
                );
            }
            Err(_) => tracing::warn!(lease = self.settings.name, "cannot release the lease in time; it will expire"),
        }
    }

    /// Waits until dropped writes have had as much time as writes that the end of a lease cuts short. Until then they may
    /// still be carried out, while a successor is already working.
    async fn let_end(&self) {
        let time = self.settings.duration.saturating_sub(self.settings.work);
        let left = || self.fence.given_up().map(|since| time.saturating_sub(self.clock.now().since(since)));
        while let Some(left) = left().filter(|left| !left.is_zero()) {
            tokio::time::sleep(left).await;
        }
    }

    /// Acquires and renews the lease, for ever.
    async fn hold(&self, held: &mut Held) {
        let mut candidate = Candidate::new(&self.settings.identity);
        loop {
            let asked = self.clock.now();
            // While a request is in flight, it is unknown who holds the lease. Its timeout is half of `work`, so that a
            // single request that hangs does not cost the lease.
            let known = match std::mem::replace(held, Held::Unknown) {
                Held::Lease(lease) => Some(*lease),
                Held::No | Held::Unknown => None,
            };
            let attempt = tokio::time::timeout(self.settings.work / 2, self.attempt(known, &mut candidate)).await;
            match attempt.unwrap_or_else(|elapsed| Err(kube::Error::Service(elapsed.into()))) {
                Ok(Attempt::Held(lease)) => {
                    *held = Held::Lease(lease);
                    // Another replica may have worked while this machine slept and its timers stood still, so the term ends.
                    // Its reconciles have until the next renewal to stop.
                    if *self.role.borrow() != Role::Standby && self.fence.check().is_err() {
                        self.stand_by("it was renewed too late");
                    } else {
                        self.fence.open_until(asked + self.settings.work);
                        self.lead();
                    }
                }
                Ok(Attempt::Others) => {
                    *held = Held::No;
                    self.fence.close();
                    self.stand_by("another instance holds the lease");
                }
                Err(error) => {
                    // It may have been written, so the next attempt reads the lease first.
                    let left = self.fence.left();
                    tracing::warn!(
                        lease = self.settings.name,
                        ?left,
                        error = chain(&error),
                        "cannot acquire or renew the lease"
                    );
                }
            }
            tokio::time::sleep(self.settings.every).await;
        }
    }

    async fn attempt(&self, held: Option<Lease>, candidate: &mut Candidate) -> kube::Result<Attempt> {
        if held.is_none() && *self.role.borrow() != Role::Standby {
            self.metrics.slow_path();
        }
        let lease = match held {
            Some(lease) => Some(lease),
            None => self.api.get_opt(&self.settings.name).await?,
        };
        let step = candidate.saw(lease.as_ref().map(record), self.fence.check().is_ok(), self.clock.now());
        let (lease, taken) = match (step, lease) {
            (Step::Leave(_), _) => return Ok(Attempt::Others),
            (Step::Renew, Some(lease)) => (lease, false),
            (_, Some(lease)) => (lease, true),
            (_, None) => (self.first(), true),
        };
        let next = self.held_by_us(lease, taken);
        // By its resource version, or as a creation, so that the first writer wins.
        let written = match next.metadata.resource_version {
            Some(_) => self.api.replace(&self.settings.name, &PostParams::default(), &next).await,
            None => self.api.create(&PostParams::default(), &next).await,
        };
        match written {
            Ok(lease) => {
                candidate.saw(Some(record(&lease)), true, self.clock.now());
                Ok(Attempt::Held(Box::new(lease)))
            }
            // Another client changed it. If it is still ours, the fence is open for a while, and the next attempt finds out.
            Err(kube::Error::Api(status)) if status.code == 409 && step == Step::Renew => Err(kube::Error::Api(status)),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(Attempt::Others),
            Err(error) => Err(error),
        }
    }

    fn first(&self) -> Lease {
        let metadata = ObjectMeta { name: Some(self.settings.name.clone()), ..ObjectMeta::default() };
        Lease { metadata, spec: None }
    }

    fn held_by_us(&self, mut lease: Lease, taken: bool) -> Lease {
        let now = Timestamp::now();
        let spec = lease.spec.get_or_insert_default();
        if taken {
            spec.lease_transitions = Some(spec.lease_transitions.map_or(0, |before| before.saturating_add(1)));
            // The record differs by its holder, so the renewal time need not.
            spec.renew_time = None;
            spec.acquire_time = Some(renewal(None, now));
        }
        spec.holder_identity = Some(self.settings.identity.clone());
        spec.lease_duration_seconds = i32::try_from(self.settings.duration.as_secs()).ok();
        spec.renew_time = Some(renewal(spec.renew_time.as_ref(), now));
        lease
    }

    /// Ends the term when the fence closes, even if a renewal is in flight.
    async fn watch_over(&self) {
        let mut role = self.role.subscribe();
        loop {
            if *role.borrow_and_update() == Role::Standby {
                // Cannot fail: we own the sender.
                let _changed = role.changed().await;
                continue;
            }
            match self.fence.left() {
                Duration::ZERO => self.stand_by("it was not renewed in time"),
                left => tokio::time::sleep(left).await,
            }
        }
    }

    fn lead(&self) {
        self.role.send_if_modified(|role| match role {
            Role::Leading { .. } => false,
            Role::Standby => {
                tracing::info!(lease = self.settings.name, identity = self.settings.identity, "leading");
                self.metrics.leads(true);
                *role = Role::Leading { term: self.terms.fetch_add(1, Ordering::Relaxed) + 1 };
                true
            }
        });
    }

    fn stand_by(&self, reason: &'static str) {
        self.role.send_if_modified(|role| match role {
            Role::Standby => false,
            Role::Leading { .. } => {
                tracing::info!(lease = self.settings.name, reason, "standing by");
                self.metrics.leads(false);
                *role = Role::Standby;
                true
            }
        });
    }

    /// Releases the lease if it is ours, whatever became of its last renewal; `known` is its last known content.
    async fn release(&self, known: Option<Lease>) -> kube::Result<()> {
        let mut known = known;
        loop {
            let lease = match known.take() {
                Some(lease) => Some(lease),
                None => self.api.get_opt(&self.settings.name).await?,
            };
            let Some(mut lease) = lease.filter(|lease| record(lease).holder == self.settings.identity) else {
                return Ok(());
            };
            let spec = lease.spec.get_or_insert_default();
            spec.holder_identity = Some(String::new());
            // As client-go does, so that clients that do not understand an empty holder need not wait either.
            spec.lease_duration_seconds = Some(1);
            spec.renew_time = Some(MicroTime(Timestamp::now()));
            match self.api.replace(&self.settings.name, &PostParams::default(), &lease).await {
                Ok(_) => {
                    tracing::info!(lease = self.settings.name, "released the lease");
                    return Ok(());
                }
                // Another client changed it, or a renewal of ours was still in flight.
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Returns the time of a renewal: `now`, but always later than the last one. Others notice a renewal only if the record
/// changes, and a clock may stand still or be set back.
pub(super) fn renewal(before: Option<&MicroTime>, now: Timestamp) -> MicroTime {
    let next = before.map_or(i64::MIN, |MicroTime(before)| before.as_microsecond() + 1);
    // A lease has times in microseconds.
    MicroTime(Timestamp::from_microsecond(now.as_microsecond().max(next)).unwrap_or(now))
}

fn record(lease: &Lease) -> Record {
    let LeaseSpec { holder_identity, lease_duration_seconds, acquire_time, renew_time, lease_transitions, .. } =
        lease.spec.clone().unwrap_or_default();
    let text = |time: Option<MicroTime>| time.map(|MicroTime(time)| time.to_string()).unwrap_or_default();
    Record {
        holder: holder_identity.unwrap_or_default(),
        duration: Duration::from_secs(lease_duration_seconds.unwrap_or_default().max(0).unsigned_abs().into()),
        acquired: text(acquire_time),
        renewed: text(renew_time),
        transitions: lease_transitions.unwrap_or_default(),
        uid: lease.metadata.uid.clone().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renewal_says_another_time_whatever_the_clock_says() {
        let at = |micros| MicroTime(Timestamp::from_microsecond(micros).unwrap());
        for (before, clock, expected) in [
            (None, 1_000_500, 1_000),
            (Some(900), 1_000_500, 1_000),
            // The clock stands still, or was set back.
            (Some(1_000), 1_000_500, 1_001),
            (Some(5_000), 1_000_500, 5_001),
        ] {
            let now = Timestamp::from_nanosecond(clock).unwrap();
            assert_eq!(renewal(before.map(at).as_ref(), now), at(expected), "{before:?}");
        }
    }
}
