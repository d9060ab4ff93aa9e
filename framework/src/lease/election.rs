//! Takes the lease, renews it, and gives it back.

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
use crate::metrics::{LeaseFigures, Metrics};

/// What this replica may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Another one works, or nobody knows.
    Standby,
    /// This one works, for the n-th time since it was started.
    Leading {
        /// From 1 on.
        term: u64,
    },
}

/// One replica's part in an election. Nothing happens before [`run`](Self::run).
pub struct Election {
    api: Api<Lease>,
    settings: Settings,
    clock: Arc<dyn Clock>,
    fence: Fence,
    role: watch::Sender<Role>,
    terms: AtomicU64,
    figures: LeaseFigures,
}

/// What is known of the lease.
enum Held {
    /// It is somebody else's, or nobody's.
    No,
    /// It may be ours: a request is under way, or its answer did not come.
    Unknown,
    /// It is ours, and this is what it said last.
    Lease(Box<Lease>),
}

/// What an attempt to take or renew the lease came to.
enum Attempt {
    Held(Box<Lease>),
    Others,
}

impl Election {
    /// `client` is for the lease itself: it must not be behind the fence.
    ///
    /// # Errors
    /// [`Unsafe`] if two replicas with these times could work at once.
    pub fn new(client: Client, settings: Settings, clock: Arc<dyn Clock>) -> Result<Self, Unsafe> {
        settings.check()?;
        let api = Api::namespaced(client, &settings.namespace);
        let (role, _) = watch::channel(Role::Standby);
        let (fence, figures) = (Fence::new(clock.clone()), LeaseFigures::default());
        Ok(Self { api, settings, fence, clock, role, terms: AtomicU64::new(0), figures })
    }

    pub(crate) fn counted(mut self, metrics: &Metrics) -> Self {
        self.figures = metrics.of_lease(&self.settings.name);
        self
    }

    /// What every request of the work has to pass.
    pub fn fence(&self) -> Fence {
        self.fence.clone()
    }

    /// Follows what this replica may do. When it is told of a loss, the fence is closed already.
    pub fn role(&self) -> watch::Receiver<Role> {
        self.role.subscribe()
    }

    /// Takes part until `stop` is ready, then closes the fence and gives the lease back, so that another replica has it within a renewal's
    /// time. End the work first. If a write was given up a moment ago without an answer, the lease is kept until that is surely over.
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
            // What was under way may have been written.
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

    /// Waits until writes that were given up have had as much time as those have that the end of a lease cuts short: they may still be carried
    /// out, and a successor would be at work already.
    async fn let_end(&self) {
        let time = self.settings.duration.saturating_sub(self.settings.work);
        let left = || self.fence.given_up().map(|since| time.saturating_sub(self.clock.now().since(since)));
        while let Some(left) = left().filter(|left| !left.is_zero()) {
            tokio::time::sleep(left).await;
        }
    }

    /// Takes and renews, for ever.
    async fn hold(&self, held: &mut Held) {
        let mut candidate = Candidate::new(&self.settings.identity);
        loop {
            let asked = self.clock.now();
            // Half of the time to work, so that one request which hangs does not cost the lease.
            // While it is under way, nobody knows.
            let known = match std::mem::replace(held, Held::Unknown) {
                Held::Lease(lease) => Some(*lease),
                Held::No | Held::Unknown => None,
            };
            let attempt = tokio::time::timeout(self.settings.work / 2, self.attempt(known, &mut candidate)).await;
            match attempt.unwrap_or_else(|elapsed| Err(kube::Error::Service(elapsed.into()))) {
                Ok(Attempt::Held(lease)) => {
                    *held = Held::Lease(lease);
                    // Somebody else may have worked since, while this machine slept and its timers stood still: what began before is not to go on. It has until
                    // the next renewal to end.
                    if *self.role.borrow() != Role::Standby && self.fence.check().is_err() {
                        self.stand_by("its time was over before it was renewed");
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
                    // Whether it was written is not known: it is looked at before the next try.
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
            self.figures.slow_path();
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
        // With its resource version, or as a creation: who was faster wins.
        let written = match next.metadata.resource_version {
            Some(_) => self.api.replace(&self.settings.name, &PostParams::default(), &next).await,
            None => self.api.create(&PostParams::default(), &next).await,
        };
        match written {
            Ok(lease) => {
                candidate.saw(Some(record(&lease)), true, self.clock.now());
                Ok(Attempt::Held(Box::new(lease)))
            }
            // Somebody touched it. If it is ours all the same, the fence is open for a while still and the next look tells.
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
            // The holder is another one, so the record is too.
            spec.renew_time = None;
            spec.acquire_time = Some(renewal(None, now));
        }
        spec.holder_identity = Some(self.settings.identity.clone());
        spec.lease_duration_seconds = i32::try_from(self.settings.duration.as_secs()).ok();
        spec.renew_time = Some(renewal(spec.renew_time.as_ref(), now));
        lease
    }

    /// Ends the term when its time is over, whatever the renewal is doing.
    async fn watch_over(&self) {
        let mut role = self.role.subscribe();
        loop {
            if *role.borrow_and_update() == Role::Standby {
                // The sender is ours, so it is there.
                let _changed = role.changed().await;
                continue;
            }
            match self.fence.left() {
                Duration::ZERO => self.stand_by("it could not be renewed in time"),
                left => tokio::time::sleep(left).await,
            }
        }
    }

    fn lead(&self) {
        self.role.send_if_modified(|role| match role {
            Role::Leading { .. } => false,
            Role::Standby => {
                tracing::info!(lease = self.settings.name, identity = self.settings.identity, "leading");
                self.figures.leads(true);
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
                self.figures.leads(false);
                *role = Role::Standby;
                true
            }
        });
    }

    /// Gives the lease back if it is ours, wherever its last renewal got to; `known` is what it was last seen to be.
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
            // As client-go does: also those who do not understand an empty holder need not wait.
            spec.lease_duration_seconds = Some(1);
            spec.renew_time = Some(MicroTime(Timestamp::now()));
            match self.api.replace(&self.settings.name, &PostParams::default(), &lease).await {
                Ok(_) => {
                    tracing::info!(lease = self.settings.name, "released the lease");
                    return Ok(());
                }
                // Somebody touched it, or a renewal of ours was still under way.
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// The time of a renewal: `now`, but always later than the last one. Others know a renewal only by a record that is not the same, and a clock may
/// stand still or be set back.
pub(super) fn renewal(before: Option<&MicroTime>, now: Timestamp) -> MicroTime {
    let next = before.map_or(i64::MIN, |MicroTime(before)| before.as_microsecond() + 1);
    // Microseconds are what a lease can say.
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
            // It stands still, or was set back.
            (Some(1_000), 1_000_500, 1_001),
            (Some(5_000), 1_000_500, 5_001),
        ] {
            let now = Timestamp::from_nanosecond(clock).unwrap();
            assert_eq!(renewal(before.map(at).as_ref(), now), at(expected), "{before:?}");
        }
    }
}
