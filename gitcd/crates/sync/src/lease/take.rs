//! Acquisition of the lease by a waiting server.

use std::sync::Arc;
use std::time::{Duration, Instant};

use git2::Oid;
use gitcd_core::blocking::Panicked;
use gitcd_core::error::chain as describe;
use gitcd_core::fence::{Fence, Moment};
use gitcd_core::supervisor::Supervisor;
use gitcd_engine::recovery::StateLock;
use gitcd_repo::branch;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};

use super::attempts::{Attempt, Attempts};
use super::chain::Chain;
use super::mark::Mark;
use super::record::{Record, reference};
use super::remote::LeaseRemote;
use super::renewer::{LeaseRenewer, limit, rest, retry, within};
use super::terms::{Holding, Look, Step, Waiting};
use super::{Lease, LeaseError, Settings, Shared, takeover};
use crate::OWN_ACCESS_HINT;
use crate::git_worker::blocking;
use crate::remote::{Link, Location, RemoteError};
use crate::status::Condition;
use crate::wire::Cause;

/// First interval between equal log lines of a waiting server; it grows up to [`LOG_AT_LAST`].
const LOG_EVERY: Duration = Duration::from_secs(10);
const LOG_AT_LAST: Duration = Duration::from_mins(10);

/// The input of [`Lease::take`], besides the configuration.
#[derive(Debug)]
pub struct Acquisition {
    /// The lock of the branch's state folder.
    pub lock: StateLock,
    /// Size of a journal segment, the unit of trimming.
    pub segment_bytes: u64,
    /// Receives each fetched metadata commit of another server.
    pub pushed: Option<watch::Sender<Option<Oid>>>,
    /// Starts the renewal of the lease again after a panic.
    pub supervisor: Supervisor,
    /// Receives each attempt, and the lease as soon as it is acquired. If the server does not start, the caller must withdraw them.
    pub attempts: Arc<Attempts>,
}

/// A server that waits for a lease and takes it.
struct Taker {
    upstream: LeaseRemote,
    reference: String,
    duration: Duration,
    mark: Arc<Mark>,
    /// Commits for attempts to take the lease in `epoch`.
    chain: Chain,
    epoch: u64,
    waiting: Waiting,
    /// `None` while preparations have it.
    lock: Option<StateLock>,
    /// At most one task; aborted with the wait.
    preparing: JoinSet<Prepared>,
    segment_bytes: u64,
    /// The remote's metadata commit of the last preparations.
    compared: Option<Oid>,
    is_saved: bool,
    is_prepared: bool,
    /// Consecutive failures that only an operator can fix.
    refusals: u32,
    holder: String,
    host: String,
    last_logged: Option<(String, Instant, u32)>,
    pushed: Option<watch::Sender<Option<Oid>>>,
    supervisor: Supervisor,
    attempts: Arc<Attempts>,
}

/// The result of preparations.
type Prepared = Result<(takeover::Own, Result<bool, RemoteError>), LeaseError>;

/// The remote's references at one moment.
struct Seen {
    found: Option<Oid>,
    record: Option<Record>,
    /// Whether the previous process of this state folder left the lease at this value.
    is_own: bool,
    metadata: Option<Oid>,
    data: Option<Oid>,
    at: Moment,
}

impl Lease {
    /// Waits for the lease of a branch, takes it, and starts to renew it. Meanwhile, fetches the remote's branch, and pushes
    /// commits that only this server has to a side branch if another server has written since.
    ///
    /// # Errors
    /// [`LeaseError`] if waiting would not help. The lease may be acquired nevertheless: see [`Acquisition::attempts`].
    pub async fn take(
        settings: &Settings,
        config: &branch::Config,
        acquisition: Acquisition,
    ) -> Result<(Arc<Self>, takeover::Own), LeaseError> {
        let Acquisition { lock, segment_bytes, pushed, supervisor, attempts } = acquisition;
        let upstream = LeaseRemote { remote: settings.remote.clone(), config: config.clone(), link: Link::default() };
        let (at, folder) = (upstream.clone(), lock.folder().to_owned());
        let (is_served, mark) = blocking(move || {
            let is_served = match at.remote.location(&at.config.repository)? {
                Location::Folder(folder) => StateLock::is_taken(&folder, &at.config.data_reference),
                Location::Url(_) => false,
            };
            Ok::<_, RemoteError>((is_served, Mark::of(&folder)))
        })
        .await?;
        if is_served {
            let (remote, reference) = (upstream.remote.name, config.data_reference.clone());
            return Err(LeaseError::Served { remote, reference });
        }
        let holder = rand::random::<[u8; 16]>().iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
        let host = rustix::system::uname().nodename().to_string_lossy().replace(|c: char| c.is_control(), "");
        let taker = Taker {
            reference: reference(&config.data_reference),
            upstream,
            duration: settings.duration,
            mark: Arc::new(mark),
            chain: Chain::default(),
            epoch: 0,
            waiting: Waiting::default(),
            lock: Some(lock),
            preparing: JoinSet::new(),
            segment_bytes,
            compared: None,
            is_saved: false,
            is_prepared: false,
            refusals: 0,
            holder,
            host,
            last_logged: None,
            pushed,
            supervisor,
            attempts,
        };
        taker.run().await
    }
}

impl Taker {
    async fn run(mut self) -> Result<(Arc<Lease>, takeover::Own), LeaseError> {
        loop {
            let pause = match self.look().await {
                Ok(seen) => {
                    if let Some(attempt) = self.attempts.of(seen.found) {
                        let lease = self.taken(attempt);
                        return self.with_own(lease).await;
                    }
                    match self.decide(&seen) {
                        Step::Wait(rest) => {
                            self.refusals = 0;
                            if let Some(ended) = self.preparing.try_join_next() {
                                self.prepared(ended)?;
                            }
                            if self.preparing.is_empty() {
                                self.prepare(&seen);
                            }
                            rest.min(poll(self.duration))
                        }
                        Step::Take => match self.attempt(&seen).await {
                            Ok(attempt) => {
                                let lease = self.taken(attempt);
                                return self.with_own(lease).await;
                            }
                            Err(error) if error.cause == Cause::Served => {
                                let (remote, reference) = (error.remote, self.upstream.config.data_reference);
                                return Err(LeaseError::Served { remote, reference });
                            }
                            // Another server was faster, or the outcome is unknown: the next look shows it.
                            Err(error) => {
                                let what = format!("the writer lease was not taken: {}", explained(&error));
                                self.log_as(&format!("{:?}", error.condition), &what);
                                self.rest(error.condition)
                            }
                        },
                    }
                }
                Err(error) if error.condition == Condition::Damaged => {
                    let (remote, reference) = (error.remote, self.reference);
                    return Err(LeaseError::Garbage { remote, reference, problem: error.problem });
                }
                Err(error) => {
                    self.log(&format!("waiting for the writer lease: {}", explained(&error)));
                    self.rest(error.condition).max(Duration::from_millis(250))
                }
            };
            tokio::time::sleep(pause).await;
        }
    }

    async fn look(&self) -> Result<Seen, RemoteError> {
        let (upstream, name, mark) = (self.upstream.clone(), self.reference.clone(), self.mark.clone());
        let limit = limit(self.duration).max(Duration::from_secs(5));
        let looked = within(limit, &self.upstream.remote.name, move || {
            let config = &upstream.config;
            let [found, data, metadata] =
                upstream.find([&name, &config.data_reference, &config.metadata_reference], limit)?;
            // Read after the reference: it has had this value since before that moment.
            let at = Moment::now();
            let mut seen = Seen { found, record: None, is_own: false, metadata, data, at };
            if let Some(oid) = found {
                upstream.bring(&[(&name, found)])?;
                let record = Record::read(&upstream.here()?, oid);
                seen.record = Some(record.map_err(|error| upstream.failed(Condition::Damaged, &error))?);
                seen.is_own = mark.is_own(found);
            }
            Ok(seen)
        });
        looked.await
    }

    fn decide(&mut self, seen: &Seen) -> Step {
        let step = self.waiting.look(Look {
            found: seen.found,
            record: seen.record.as_ref(),
            is_own: seen.is_own,
            has_branch: seen.data.or(seen.metadata).is_some(),
            now: seen.at,
            usual: self.duration,
        });
        if let Step::Wait(rest) = step {
            let whose = match &seen.record {
                Some(record) => format!("{} has it in epoch {}", record.host, record.epoch),
                None => "another server may write this branch without a lease".to_owned(),
            };
            let (reference, remote) = (&self.reference, &self.upstream.remote.name);
            self.log_as(
                &whose,
                &format!("waiting for the writer lease, {reference} of {remote}: {whose}; it is free in {rest:.1?} unless it is renewed"),
            );
        }
        step
    }

    /// Starts to prepare a takeover, see [`takeover::prepare`], so that little is left to do then. Runs in a task of its own,
    /// because the lease must be read meanwhile.
    fn prepare(&mut self, seen: &Seen) {
        let Some(theirs) = seen.metadata.filter(|_| self.compared != seen.metadata) else { return };
        let Some(lock) = self.lock.take() else { return };
        self.compared = Some(theirs);
        let (upstream, data, segment_bytes) = (self.upstream.clone(), seen.data, self.segment_bytes);
        let own = takeover::Own { lock, is_saved: self.is_saved };
        self.preparing.spawn(takeover::prepare(upstream, data, theirs, segment_bytes, own));
    }

    /// Takes over the result of preparations. If they panicked, the lock is released.
    fn prepared(&mut self, ended: Result<Prepared, JoinError>) -> Result<(), LeaseError> {
        let (own, outcome) = ended.map_err(|error| Panicked::of_task("prepare to take over the branch", error))??;
        (self.lock, self.is_saved) = (Some(own.lock), own.is_saved);
        match outcome {
            Err(error) => {
                // The next look starts the preparations again.
                self.compared = None;
                self.log(&describe(&error));
            }
            Ok(is_others) => {
                if let Some(pushed) = self.pushed.as_ref().filter(|_| is_others) {
                    pushed.send_replace(self.compared);
                }
                if !std::mem::replace(&mut self.is_prepared, true) {
                    tracing::info!("ready to take over: everything on the remote has been fetched");
                }
            }
        }
        Ok(())
    }

    async fn attempt(&mut self, seen: &Seen) -> Result<Attempt, RemoteError> {
        let record = Record {
            is_held: true,
            epoch: seen.record.as_ref().map_or(0, |record| record.epoch) + 1,
            holder: self.holder.clone(),
            host: self.host.clone(),
            duration: self.duration,
        };
        if record.epoch != self.epoch {
            (self.chain, self.epoch) = (Chain::default(), record.epoch);
        }
        let (upstream, wanted, mut chain) = (self.upstream.clone(), record.clone(), std::mem::take(&mut self.chain));
        let (mark, found) = (self.mark.clone(), seen.found);
        let prepared = blocking(move || {
            let next = chain.next(&upstream, &wanted);
            if let Ok(next) = &next {
                mark.write(found, *next);
            }
            (next, chain)
        });
        let (next, chain) = prepared.await;
        self.chain = chain;
        let next = next.map_err(|error| self.upstream.failed(Condition::Failed, &describe(&error)))?;
        let attempt = Attempt { commit: next, at: Moment::now(), record };
        let sending = self.attempts.sends(&self.upstream, attempt.clone()).await;
        let (upstream, limit) = (self.upstream.clone(), limit(self.duration));
        let update = (self.reference.clone(), next, seen.found);
        let sent = within(limit, &self.upstream.remote.name, move || {
            let _sending = sending;
            upstream.push(vec![update], limit)
        });
        sent.await?;
        Ok(attempt)
    }

    fn taken(&mut self, Attempt { commit, at, record }: Attempt) -> Arc<Lease> {
        tracing::info!(
            epoch = record.epoch, lease = ?record.duration, reference = self.reference, remote = self.upstream.remote.name,
            "acquired the writer lease"
        );
        let holding = Holding::new(self.duration, commit, at);
        let gate = Arc::new(Fence::default());
        gate.open_until(holding.until());
        let shared = Arc::new(Shared {
            gate,
            epoch: record.epoch,
            reopened: watch::Sender::new(0),
            lost: watch::Sender::new(None),
            problem: Mutex::default(),
        });
        // The chain may be for another epoch: then the first renewal writes a new one.
        let chain = if self.epoch == record.epoch { std::mem::take(&mut self.chain) } else { Chain::default() };
        let (upstream, mark) = (self.upstream.clone(), self.mark.clone());
        // Starts renewals, however long the takeover takes.
        let renewer = LeaseRenewer { upstream, record, chain, mark, holding, shared };
        let lease = Lease::keep(renewer, self.supervisor.clone());
        self.attempts.succeeded(lease.clone());
        lease
    }

    async fn with_own(mut self, lease: Arc<Lease>) -> Result<(Arc<Lease>, takeover::Own), LeaseError> {
        while let Some(ended) = self.preparing.join_next().await {
            self.prepared(ended)?;
        }
        let lock = self.lock.expect("the preparations have returned the lock");
        Ok((lease, takeover::Own { lock, is_saved: self.is_saved }))
    }

    /// Returns the delay after a failed exchange.
    fn rest(&mut self, condition: Condition) -> Duration {
        let rest = rest(self.duration, self.refusals);
        if !matches!(condition, Condition::Denied | Condition::Failed) {
            self.refusals = 0;
            return retry(self.duration);
        }
        self.refusals = self.refusals.saturating_add(1);
        rest
    }

    fn log(&mut self, what: &str) {
        self.log_as(what, what);
    }

    /// Logs a message when its key is new, and then at growing intervals: a server may wait for days.
    fn log_as(&mut self, key: &str, what: &str) {
        let times = match &self.last_logged {
            Some((last, at, times)) if last == key => {
                if at.elapsed() < (LOG_EVERY * 6_u32.saturating_pow(times - 1)).min(LOG_AT_LAST) {
                    return;
                }
                (times + 1).min(4)
            }
            _ => 1,
        };
        tracing::info!("{what}");
        self.last_logged = Some((key.to_owned(), Instant::now(), times));
    }
}

/// Returns an error with a hint on how to fix it.
fn explained(error: &RemoteError) -> String {
    let said = describe(error);
    match error.condition {
        Condition::Denied if error.cause != Cause::OwnAccess => {
            format!("{said}; a lease requires the right to push refs/gitcd/: on a `gitcd host`, {OWN_ACCESS_HINT}")
        }
        _ => said,
    }
}

/// Returns the interval at which a waiting server reads the lease.
fn poll(duration: Duration) -> Duration {
    (duration / 10).clamp(Duration::from_millis(50), Duration::from_secs(2))
}
