//! From nothing to the lease.

use std::sync::Arc;
use std::time::{Duration, Instant};

use git2::Oid;
use gitcd_core::error::chain as told;
use gitcd_core::fence::{Gate, Moment};
use gitcd_engine::recovery::StateLock;
use gitcd_repo::branch;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn_blocking};

use super::SERVED;
use super::chain::Chain;
use super::keeper::{Keeper, limit, rest, retry, within};
use super::mark::Mark;
use super::place::Place;
use super::record::{Record, reference};
use super::terms::{Holding, Look, Step, Waiting};
use super::{Lease, LeaseError, Settings, Shared, takeover};
use crate::OWN_ACCESS_HINT;
use crate::remote::{Place as Where, RemoteError};
use crate::status::Condition;

/// How often those who wait say so.
const TELL: Duration = Duration::from_secs(10);
const TELL_AT_LAST: Duration = Duration::from_mins(10);

/// One that takes a lease.
struct Taker {
    place: Place,
    reference: String,
    duration: Duration,
    mark: Arc<Mark>,
    /// Of this epoch.
    chain: Chain,
    epoch: u64,
    waiting: Waiting,
    /// Not there during preparations.
    lock: Option<StateLock>,
    preparing: Option<JoinHandle<Prepared>>,
    segment_bytes: u64,
    /// This metadata of the remote was prepared for; what only we have is saved once.
    compared: Option<Oid>,
    is_saved: bool,
    is_prepared: bool,
    /// What was tried, and when it was sent: it may have arrived or not.
    tried: Vec<(Oid, Moment, Record)>,
    /// How often in a row it was refused what only a person can mend.
    refusals: u32,
    holder: String,
    host: String,
    last_told: Option<(String, Instant, u32)>,
    pushed: Option<watch::Sender<Option<Oid>>>,
}

/// What preparations end with.
type Prepared = Result<(takeover::Own, Result<bool, RemoteError>), LeaseError>;

/// What the remote has.
struct Seen {
    found: Option<Oid>,
    record: Option<Record>,
    metadata: Option<Oid>,
    data: Option<Oid>,
    at: Moment,
}

impl Lease {
    /// Takes the lease of a branch, however long others have it; renews it from then on. What the branch has here and the new writer
    /// has not is put on a side branch meanwhile. `pushed` is told of the metadata commits of somebody else that are here.
    ///
    /// # Errors
    /// [`LeaseError`] if waiting would not help.
    pub async fn take(
        settings: &Settings,
        config: &branch::Config,
        segment_bytes: u64,
        lock: StateLock,
        pushed: Option<watch::Sender<Option<Oid>>>,
    ) -> Result<(Arc<Self>, takeover::Own), LeaseError> {
        let place = Place { remote: settings.remote.clone(), config: config.clone(), link: Arc::default() };
        if let Where::Folder(folder) = place.remote.place(&config.repository)?
            && StateLock::is_taken(&folder, &config.data_reference)
        {
            let (remote, reference) = (place.remote.name, config.data_reference.clone());
            return Err(LeaseError::Served { remote, reference });
        }
        let holder = rand::random::<[u8; 16]>().iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
        let host = rustix::system::uname().nodename().to_string_lossy().replace(|c: char| c.is_control(), "");
        let taker = Taker {
            reference: reference(&config.data_reference),
            place,
            duration: settings.duration,
            mark: Arc::new(Mark::of(lock.folder())),
            chain: Chain::default(),
            epoch: 0,
            waiting: Waiting::default(),
            lock: Some(lock),
            preparing: None,
            segment_bytes,
            compared: None,
            is_saved: false,
            is_prepared: false,
            tried: Vec::new(),
            refusals: 0,
            holder,
            host,
            last_told: None,
            pushed,
        };
        taker.run().await
    }
}

impl Taker {
    async fn run(mut self) -> Result<(Arc<Lease>, takeover::Own), LeaseError> {
        loop {
            let pause = match self.look().await {
                Ok(seen) => {
                    if let Some(at) = self.tried.iter().position(|(tried, ..)| Some(*tried) == seen.found) {
                        let (taken, sent, record) = self.tried.swap_remove(at);
                        let keeper = self.taken(taken, sent, record);
                        return self.with_own(keeper).await;
                    }
                    match self.decide(&seen) {
                        Step::Wait(rest) => {
                            self.refusals = 0;
                            if self.preparing.as_ref().is_none_or(JoinHandle::is_finished) {
                                self.prepared().await?;
                                self.prepare(&seen);
                            }
                            rest.min(poll(self.duration))
                        }
                        Step::Take => match self.attempt(&seen).await {
                            Ok((taken, sent, record)) => {
                                let keeper = self.taken(taken, sent, record);
                                return self.with_own(keeper).await;
                            }
                            Err(error) if error.problem.contains(SERVED) => {
                                let (remote, reference) = (error.remote, self.place.config.data_reference);
                                return Err(LeaseError::Served { remote, reference });
                            }
                            // Somebody was faster, or it is not known: the next look tells.
                            Err(error) => {
                                let what = format!("the writer lease was not taken: {}", explained(&error));
                                self.tell_as(&format!("{:?}", error.condition), &what);
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
                    self.tell(&format!("waiting for the writer lease: {}", explained(&error)));
                    self.rest(error.condition).max(Duration::from_millis(250))
                }
            };
            tokio::time::sleep(pause).await;
        }
    }

    async fn look(&self) -> Result<Seen, RemoteError> {
        let (place, name) = (self.place.clone(), self.reference.clone());
        let limit = limit(self.duration).max(Duration::from_secs(5));
        let looked = within(limit, &self.place.remote.name, move || {
            let config = &place.config;
            let [found, data, metadata] =
                place.find([&name, &config.data_reference, &config.metadata_reference], limit)?;
            // After the reference was read: what it says is at least as old.
            let at = Moment::now();
            let Some(oid) = found else { return Ok(Seen { found, record: None, metadata, data, at }) };
            place.bring(&[(&name, found)])?;
            let record = Record::read(&place.here()?, oid).map_err(|error| RemoteError {
                remote: place.remote.name.clone(),
                condition: Condition::Damaged,
                problem: error.to_string(),
            })?;
            Ok(Seen { found, record: Some(record), metadata, data, at })
        });
        looked.await
    }

    fn decide(&mut self, seen: &Seen) -> Step {
        let step = self.waiting.look(Look {
            found: seen.found,
            record: seen.record.as_ref(),
            is_own: self.mark.is_own(seen.found),
            has_branch: seen.data.or(seen.metadata).is_some(),
            now: seen.at,
            usual: self.duration,
        });
        if let Step::Wait(rest) = step {
            let whose = match &seen.record {
                Some(record) => format!("{} has it in epoch {}", record.host, record.epoch),
                None => "another user may write this branch without a lease".to_owned(),
            };
            let (reference, remote) = (&self.reference, &self.place.remote.name);
            self.tell_as(
                &whose,
                &format!("waiting for the writer lease, {reference} of {remote}: {whose}; it is free in {rest:.1?} unless it is renewed"),
            );
        }
        step
    }

    /// Brings what the remote has, so that a takeover has little to wait for, and puts what only we have on a side branch if somebody
    /// else has begun to write; all of that beside the looks at the lease, which must go on.
    fn prepare(&mut self, seen: &Seen) {
        let Some(theirs) = seen.metadata.filter(|_| self.compared != seen.metadata) else { return };
        let Some(lock) = self.lock.take() else { return };
        self.compared = Some(theirs);
        let (place, data, segment_bytes) = (self.place.clone(), seen.data, self.segment_bytes);
        let own = takeover::Own { lock, is_saved: self.is_saved };
        self.preparing = Some(tokio::spawn(takeover::prepare(place, data, theirs, segment_bytes, own)));
    }

    /// Waits until it is prepared.
    async fn prepared(&mut self) -> Result<(), LeaseError> {
        let Some(preparing) = self.preparing.take() else { return Ok(()) };
        let (own, outcome) = preparing.await.expect("preparations do not panic")?;
        (self.lock, self.is_saved) = (Some(own.lock), own.is_saved);
        match outcome {
            Err(error) => {
                // The next look tries again.
                self.compared = None;
                self.tell(&told(&error));
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

    async fn attempt(&mut self, seen: &Seen) -> Result<(Oid, Moment, Record), RemoteError> {
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
        let (place, wanted, mut chain) = (self.place.clone(), record.clone(), std::mem::take(&mut self.chain));
        let made = spawn_blocking(move || (chain.next(&place, &wanted), chain));
        let (next, chain) = made.await.expect("writing objects does not panic");
        self.chain = chain;
        let next = next.map_err(|error| RemoteError {
            remote: self.place.remote.name.clone(),
            condition: Condition::Failed,
            problem: told(&error),
        })?;
        self.mark.write(seen.found, next);
        let sent = Moment::now();
        self.tried.push((next, sent, record.clone()));
        let (place, limit) = (self.place.clone(), limit(self.duration));
        let update = (self.reference.clone(), next, seen.found);
        within(limit, &self.place.remote.name, move || place.push(vec![update], limit)).await?;
        Ok((next, sent, record))
    }

    fn taken(&mut self, taken: Oid, sent: Moment, record: Record) -> Arc<Lease> {
        tracing::info!(
            epoch = record.epoch, lease = ?record.duration, reference = self.reference, remote = self.place.remote.name,
            "acquired the writer lease"
        );
        let holding = Holding::new(self.duration, taken, sent);
        let gate = Arc::new(Gate::default());
        gate.open_until(holding.until());
        let shared = Arc::new(Shared {
            gate,
            epoch: record.epoch,
            reopened: watch::Sender::new(0),
            lost: watch::Sender::new(None),
            problem: Mutex::default(),
        });
        // It may be of a later attempt: then the first renewal sends a new one.
        let chain = if self.epoch == record.epoch { std::mem::take(&mut self.chain) } else { Chain::default() };
        let (place, mark) = (self.place.clone(), self.mark.clone());
        // From now on it is renewed, whatever takes its time.
        Lease::keep(Keeper { place, record, chain, mark, holding, shared })
    }

    async fn with_own(mut self, lease: Arc<Lease>) -> Result<(Arc<Lease>, takeover::Own), LeaseError> {
        if let Err(error) = self.prepared().await {
            lease.release().await;
            return Err(error);
        }
        let lock = self.lock.expect("it is back from all preparations");
        Ok((lease, takeover::Own { lock, is_saved: self.is_saved }))
    }

    /// How long to wait after an exchange that failed.
    fn rest(&mut self, condition: Condition) -> Duration {
        let rest = rest(self.duration, self.refusals);
        if !matches!(condition, Condition::Denied | Condition::Failed) {
            self.refusals = 0;
            return retry(self.duration);
        }
        self.refusals = self.refusals.saturating_add(1);
        rest
    }

    fn tell(&mut self, what: &str) {
        self.tell_as(what, what);
    }

    /// Once when it is new, then more and more seldom: others wait for days.
    fn tell_as(&mut self, key: &str, what: &str) {
        let times = match &self.last_told {
            Some((last, at, times)) if last == key => {
                if at.elapsed() < (TELL * 6_u32.saturating_pow(times - 1)).min(TELL_AT_LAST) {
                    return;
                }
                (times + 1).min(4)
            }
            _ => 1,
        };
        tracing::info!("{what}");
        self.last_told = Some((key.to_owned(), Instant::now(), times));
    }
}

/// An error with what to do about it.
fn explained(error: &RemoteError) -> String {
    let said = told(error);
    match error.condition {
        Condition::Denied if !said.contains(OWN_ACCESS_HINT) => {
            format!("{said}; a lease takes the right to push refs/gitcd/: on a `gitcd host` that is {OWN_ACCESS_HINT}")
        }
        _ => said,
    }
}

/// How often those who wait look.
fn poll(duration: Duration) -> Duration {
    (duration / 10).clamp(Duration::from_millis(50), Duration::from_secs(2))
}
