//! Ranges at compacted revisions, answered from Git (`--history=git`).
//!
//! They run on threads for blocking work and hold no lock of the store, at most [`AT_ONCE`] at a time, each for at most
//! [`DEADLINE`]. An answer is exactly that of a store that was never compacted; otherwise, the request is refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use git2::Oid;
use gitcd_core::blocking;
use gitcd_core::revision::Revision;
use gitcd_history::exact::{ExactError, ExactRecord, KeyBounds};
use gitcd_history::{History, HistoryError};
use gitcd_mvcc::index::KeyRange;
use gitcd_mvcc::query::{Found, Range, SortBy};
use gitcd_mvcc::version::Version;
use gitcd_repo::branch;
use tokio::sync::Semaphore;
use tonic::Status;

use super::{Backend, check, status};
use crate::proto::etcdserverpb as pb;

/// Reads at once.
const AT_ONCE: usize = 4;
/// How long a read may take, with the wait for its turn.
const DEADLINE: Duration = Duration::from_secs(10);
/// Limit on the values of one response, in bytes. Clients that receive slowly keep more than [`AT_ONCE`] responses in memory.
const MAX_VALUE_BYTES: usize = 32 << 20;

/// Reads compacted revisions of a branch from Git.
#[derive(Debug)]
pub struct GitHistory {
    branch: branch::Config,
    turns: Arc<Semaphore>,
    counters: Arc<HistoryCounters>,
}

/// Counters of reads from Git.
#[derive(Debug, Default)]
pub struct HistoryCounters {
    /// Answered reads.
    pub answered: AtomicU64,
    /// Reads of revisions that Git does not have, or not exactly.
    pub refused: AtomicU64,
    /// Reads that failed, or took too long.
    pub failed: AtomicU64,
    /// Their duration in microseconds.
    pub microseconds: AtomicU64,
}

/// Why a read has no answer.
#[derive(Debug, thiserror::Error)]
enum ReadError {
    #[error(transparent)]
    Exact(#[from] ExactError),
    #[error(transparent)]
    History(#[from] HistoryError),
    #[error(transparent)]
    Store(#[from] gitcd_mvcc::Error),
    #[error(
        "the values at this revision are larger than {} MiB; read fewer keys at once, with a limit or a smaller range",
        MAX_VALUE_BYTES >> 20
    )]
    TooLarge,
}

impl ReadError {
    /// Returns the status on the wire. None of its codes is retried by clients.
    fn status(self) -> Status {
        let text =
            |error: &dyn std::fmt::Display| format!("gitcd: the revision is compacted, and not read from Git: {error}");
        match self {
            Self::Exact(ExactError::Absent(_)) => status::compacted(),
            Self::Exact(ExactError::History(HistoryError::Stopped)) | Self::History(HistoryError::Stopped) => {
                let seconds = DEADLINE.as_secs();
                Status::deadline_exceeded(text(&format!(
                    "the read takes longer than {seconds} seconds; read fewer keys at once"
                )))
            }
            Self::Exact(ExactError::History(error)) | Self::History(error) => Status::internal(text(&error)),
            Self::Exact(error) => Status::out_of_range(text(&error)),
            Self::Store(error) => status::from_store(error),
            Self::TooLarge => Status::resource_exhausted(text(&Self::TooLarge)),
        }
    }

    fn is_refusal(&self) -> bool {
        matches!(self, Self::Exact(error) if !matches!(error, ExactError::History(_)))
    }
}

/// Stops a read once its request is dropped.
#[derive(Default)]
struct Abandoned(Arc<AtomicBool>);

impl Drop for Abandoned {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl GitHistory {
    /// Creates the reader of a branch.
    pub fn new(branch: branch::Config, counters: Arc<HistoryCounters>) -> Self {
        Self { branch, turns: Arc::new(Semaphore::new(AT_ONCE)), counters }
    }

    /// Answers a range at an earlier revision of the branch, with the current revision in the header.
    async fn range(&self, range: Range, keys_only: bool, current: Revision) -> Result<Found, Status> {
        let started = Instant::now();
        let turn = tokio::time::timeout(DEADLINE, self.turns.clone().acquire_owned()).await;
        let Ok(Ok(turn)) = turn else {
            self.counters.failed.fetch_add(1, Ordering::Relaxed);
            return Err(Status::resource_exhausted(format!(
                "gitcd: the revision is compacted, and {AT_ONCE} other reads from Git are in progress; read it again later"
            )));
        };
        let (abandoned, deadline) = (Abandoned::default(), started + DEADLINE);
        let (branch, is_abandoned) = (self.branch.clone(), abandoned.0.clone());
        let read = blocking::run("read a compacted revision", move || {
            let _turn = turn;
            let should_stop = move || is_abandoned.load(Ordering::Relaxed) || Instant::now() > deadline;
            let history = History::open(branch, false)?.stopped_by(should_stop);
            Reader { history, range, keys_only, current }.read()
        });
        let read = read.await.map_err(|error| Status::internal(format!("gitcd: {error}")))?;
        self.count(&read, started.elapsed());
        read.map_err(ReadError::status)
    }

    fn count(&self, read: &Result<Found, ReadError>, took: Duration) {
        let counter = match read {
            Ok(_) => &self.counters.answered,
            Err(error) if error.is_refusal() => &self.counters.refused,
            Err(_) => &self.counters.failed,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        let microseconds = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.counters.microseconds.fetch_add(microseconds, Ordering::Relaxed);
    }
}

/// One read, on its thread.
struct Reader {
    history: History,
    range: Range,
    keys_only: bool,
    current: Revision,
}

impl Reader {
    fn read(mut self) -> Result<Found, ReadError> {
        let asked = self.range.revision.map_or(0, Revision::get);
        let moment = self.history.exact(asked)?;
        let (start, end) = match &self.range.keys {
            KeyRange::One(key) => {
                let found = self.history.exact_key(&moment, key)?;
                let versions: Vec<_> = found.into_iter().map(|(record, blob)| (key.clone(), record, blob)).collect();
                return self.select(versions);
            }
            KeyRange::Span(start, end) => (start, Some(&end[..])),
            KeyRange::From(start) => (start, None),
        };
        let keys = self.history.exact_keys(&moment, KeyBounds { start, end })?;
        let count = keys.len();
        let needed = self.needed(count);
        let versions = keys.into_iter().take(needed).map(|(key, blob)| {
            let record = self.history.exact_record(&moment, &key)?;
            Ok((key.into(), record, blob))
        });
        let versions = versions.collect::<Result<_, ReadError>>()?;
        self.range.known_count = Some(count);
        self.select(versions)
    }

    /// Returns how many keys of the range the answer depends on, in order.
    fn needed(&self, count: usize) -> usize {
        match self.range.limit {
            _ if self.range.count_only => 0,
            0 => count,
            _ if self.range.sort.is_some() || !self.range.filter.is_none() => count,
            limit => limit.saturating_add(1),
        }
    }

    /// Applies order, filter and limit, and reads the values of what remains.
    fn select(&self, found: Vec<(Bytes, ExactRecord, Oid)>) -> Result<Found, ReadError> {
        let by_value = self.range.sort.is_some_and(|sort| sort.by == SortBy::Value);
        let mut bytes = 0;
        let mut versions = Vec::with_capacity(found.len());
        let mut stored = std::collections::HashMap::new();
        for (key, record, blob) in found {
            let value = if by_value { self.value(&record, blob, &mut bytes)? } else { Bytes::new() };
            versions.push(Arc::new(version(key.clone(), &record, value)));
            stored.insert(key, (record, blob));
        }
        let mut selected = self.range.of_versions(self.current, &versions);
        if self.keys_only || by_value {
            return Ok(selected);
        }
        for pair in &mut selected.pairs {
            let (record, blob) = stored[&pair.key];
            *pair = Arc::new(version(pair.key.clone(), &record, self.value(&record, blob, &mut bytes)?));
        }
        Ok(selected)
    }

    fn value(&self, record: &ExactRecord, blob: Oid, bytes: &mut usize) -> Result<Bytes, ReadError> {
        let value = self.history.exact_value(record, blob)?;
        *bytes += value.len();
        if *bytes > MAX_VALUE_BYTES { Err(ReadError::TooLarge) } else { Ok(value.into()) }
    }
}

fn version(key: Bytes, record: &ExactRecord, value: Bytes) -> Version {
    let (created, changed) = (Revision::new(record.create_revision), Revision::new(record.mod_revision));
    Version::put(key, changed, created, record.version, record.lease, value)
}

impl Backend {
    /// Returns whether a range may have to be read from Git.
    #[inline]
    pub(crate) fn may_read_git(&self, request: &pb::RangeRequest) -> bool {
        self.history.is_some() && request.revision > 0
    }

    /// Answers a range; from Git if its revision is compacted and Git is to be read.
    pub(super) async fn find_anywhere(&self, request: pb::RangeRequest) -> Result<Found, Status> {
        let Some(git) = self.history.as_ref().filter(|_| request.revision > 0) else { return self.find(request) };
        let (keys_only, is_serializable) = (request.keys_only, request.serializable);
        match self.find(request.clone()) {
            Err(refused) if status::is_compacted(&refused) => {}
            found => return found,
        }
        let range = check::range(request)?;
        let found = git.range(range, keys_only, self.store.revision()).await?;
        if !is_serializable {
            self.store.newest().map_err(status::from_store)?;
        }
        Ok(found)
    }
}
