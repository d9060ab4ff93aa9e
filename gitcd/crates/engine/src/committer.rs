//! Turns the store's log into commits, in the background.
//!
//! The committer follows the log as a watcher does. It makes one commit for every revision while that costs no more than its
//! share of the processor, and one for several revisions under load. It writes a pack once the pack's overhead is in proportion
//! to its content. A crash loses nothing: the journal has all writes.

mod actors;
mod batch_policy;
mod budget;
mod lag;
mod merge;
mod trace;
mod trim;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, UNIX_EPOCH};

use gitcd_core::error::chain;
use gitcd_core::revision::Revision;
use gitcd_core::supervisor::fail_point;
use gitcd_mvcc::Store;
use gitcd_mvcc::log::Entry;
use gitcd_mvcc::snapshot::{Incarnation, hex};
use gitcd_mvcc::work::disk_seconds;
use gitcd_repo::branch::{Branch, CommitError, Config, FlushError, OpenError, Revisions, State};
use gitcd_repo::object;
use gitcd_repo::refs::RefError;
use prometheus_client::metrics::histogram::Histogram;
use tokio::sync::watch;

use crate::audit::{self, Audit, Outcome};

use self::batch_policy::BatchPolicy;
pub use self::batch_policy::Granularity;
use self::budget::{Budget, MIN_FLUSH_INTERVAL};
pub use self::lag::lag;
use self::trace::Trace;

/// Limits of the committer.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How many revisions go into one commit.
    pub granularity: Granularity,
    /// Bytes per second for rewriting unchanged parts of directories; exceeded rather than delaying writes for long.
    pub overhead_bytes_per_second: u64,
    /// Journal size above which the compact revision is raised.
    pub max_journal_bytes: u64,
    /// For branches that others follow: commits become visible at once, and then at this interval, whatever they cost.
    pub flush_interval: Option<Duration>,
    /// How audit events of kube-apiserver are joined to revisions; `None` to name no actors.
    pub audit: Option<audit::Settings>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            granularity: Granularity::default(),
            overhead_bytes_per_second: 26 << 10,
            max_journal_bytes: 512 << 20,
            flush_interval: None,
            audit: None,
        }
    }
}

/// Size at which a pack is written in any case; until then it is held in memory.
const MAX_PACK_BYTES: usize = 24 << 20;
/// Where others follow, flushes take at most one in this many parts of the time.
const FLUSH_SHARE: u32 = 3;
/// Where others follow, the first flush after a pause waits this long for related changes, which are often written together.
const GATHER: Duration = Duration::from_millis(2);
/// Where others follow, several flushes extend the same pack up to this size.
const OPEN_PACK_BYTES: usize = 512 << 10;
/// How often an idle branch with changes of ephemeral keys still advances the start of its journal.
const IDLE_FLUSH_INTERVAL: Duration = Duration::from_mins(10);
/// Number of log entries per read.
const TAKE: usize = 4096;
/// Delay before a retry after an error, such as a full disk.
const RETRY: Duration = Duration::from_secs(2);

/// Counters for metrics.
#[derive(Debug)]
pub struct Counters {
    /// Duration of each flush: pack, references, fsyncs.
    pub flush_seconds: Histogram,
    /// Data commits.
    pub commits: AtomicU64,
    /// Revisions in these commits.
    pub revisions: AtomicU64,
    /// Packs.
    pub packs: AtomicU64,
    /// Bytes in these packs.
    pub pack_bytes: AtomicU64,
    /// Failed steps.
    pub failures: AtomicU64,
}

impl Default for Counters {
    fn default() -> Self {
        let none = AtomicU64::default;
        let (commits, revisions, packs, pack_bytes, failures) = (none(), none(), none(), none(), none());
        Self { flush_seconds: disk_seconds(), commits, revisions, packs, pack_bytes, failures }
    }
}

/// The state of a branch in Git.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The last revision in `data`.
    pub revision: Revision,
    /// The data commit.
    pub data: git2::Oid,
    /// The commit that the data reference is about to move to, so that followers do not take it for an external one.
    pub next: git2::Oid,
    /// Number of merges committed since the start.
    pub merges: u64,
    /// An external commit on the data reference that is not merged yet.
    pub foreign: Option<git2::Oid>,
}

impl Head {
    /// Returns whether both are the same state for followers of the branch.
    pub fn is_at(&self, other: &Self) -> bool {
        (self.revision, self.data, self.foreign) == (other.revision, other.data, other.foreign)
    }
}

/// The committer of one branch.
#[derive(Debug)]
pub struct Committer {
    store: Arc<Store>,
    branch: Branch,
    config: Config,
    settings: Settings,
    incarnation: Incarnation,
    folder: PathBuf,
    counters: Arc<Counters>,
    heads: watch::Sender<Head>,
    /// Revisions and metadata commits in Git from which replay can start, oldest first.
    bases: VecDeque<(Revision, [u8; 20])>,
    /// The last revision in the open pack or in Git.
    staged: Revision,
    /// Nothing below this revision is in the log: the branch resumed there.
    floor: Revision,
    budget: Budget,
    /// Duration of the last flush.
    flush_took: Duration,
    /// When the oldest revision of the open pack was staged.
    oldest: Option<Instant>,
    /// Audit events, if commits name actors.
    audit: Option<Arc<Audit>>,
    /// The last revision of which an immediate commit was requested.
    hurried: Option<Revision>,
    /// Until when the revision after `staged` waits for its audit event.
    waits_until: Option<Instant>,
    batch_policy: BatchPolicy,
    trace: Trace,
}

impl Committer {
    /// Takes over a branch. `bases` are the commits that recovery found replay can start from.
    pub fn new(
        store: Arc<Store>,
        branch: Branch,
        config: Config,
        settings: Settings,
        incarnation: Incarnation,
        bases: Vec<(Revision, [u8; 20])>,
        counters: Arc<Counters>,
    ) -> Self {
        let mut branch = branch;
        keep_open(&mut branch, &settings);
        let staged = store.committed_revision();
        let data = branch.head().data;
        let audit = settings.audit.map(|of| Arc::new(Audit::new(of, config.keys.clone())));
        if let Some(audit) = &audit {
            audit.wake(&store);
        }
        let heads =
            watch::Sender::new(Head { revision: staged, data, next: data, merges: 0, foreign: branch.foreign() });
        Self {
            heads,
            folder: crate::recovery::state_folder(&config),
            budget: Budget::new(settings.overhead_bytes_per_second, Instant::now()),
            batch_policy: BatchPolicy::new(settings.granularity),
            trace: Trace::new(&config.name),
            store,
            branch,
            config,
            settings,
            incarnation,
            counters,
            bases: bases.into(),
            staged,
            floor: staged,
            flush_took: Duration::ZERO,
            oldest: None,
            audit,
            hurried: None,
            waits_until: None,
        }
    }

    /// Returns where audit events are added, if commits name actors.
    pub fn audit(&self) -> Option<Arc<Audit>> {
        self.audit.clone()
    }

    /// Subscribes to the state of the branch in Git.
    pub fn heads(&self) -> watch::Receiver<Head> {
        self.heads.subscribe()
    }

    /// Starts the thread. It exits after the store has stopped and everything is committed; the result is false if that failed.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub fn spawn(self) -> std::io::Result<std::thread::JoinHandle<bool>> {
        std::thread::Builder::new().name("committer".into()).spawn(move || {
            // A dead committer must not look healthy: a panic poisons the store.
            let guard = PoisonOnPanic(self.store.clone());
            let done = self.run();
            drop(guard);
            done
        })
    }

    fn run(mut self) -> bool {
        loop {
            let mut until = self.flush_due_at();
            if self.over_bound() {
                // To make room must not depend on the next write, which may be refused.
                let soon = Instant::now() + MIN_FLUSH_INTERVAL;
                until = Some(until.map_or(soon, |until| until.min(soon)));
            }
            let after = self.seen();
            let until = until.into_iter().chain(self.waits_until).min();
            let (durable, stopped) = self.store.wait_for_writes(after, until);
            let step = self.step(durable, stopped);
            match step {
                Ok(()) if stopped && self.staged >= self.store.revision() => return true,
                Ok(()) => {}
                Err(Failure::Passing(reason)) => {
                    self.counters.failures.fetch_add(1, Ordering::Relaxed);
                    tracing::error!(reason, "cannot commit; the journal keeps everything, trying again");
                    if stopped {
                        return false;
                    }
                    self.wait(RETRY);
                    if let Err(Failure::Lasting(reason)) = self.reopen() {
                        return self.give_up(&reason);
                    }
                }
                Err(Failure::Lasting(reason)) => return self.give_up(&reason),
            }
        }
    }

    /// Poisons the store: retries cannot help, and writes that never reach Git must not be accepted silently.
    fn give_up(&self, reason: &str) -> bool {
        self.counters.failures.fetch_add(1, Ordering::Relaxed);
        self.store.poison(reason);
        false
    }

    /// Stages new log entries, and flushes if it is due.
    fn step(&mut self, durable: Revision, stopped: bool) -> Result<(), Failure> {
        fail_point::pass("committer");
        if self.store.take_hurry() {
            self.hurried = self.hurried.max(Some(durable));
        }
        // The store announces a merge a moment before its writes are durable.
        while let Some(merge) = self.store.next_merge().filter(|merge| merge.last() <= self.store.revision()) {
            self.wait_for_actors(merge.before(), stopped);
            self.stage_through(merge.before(), stopped)?;
            self.merge(&merge)?;
            self.store.merged();
            self.heads.send_modify(|head| head.merges += 1);
        }
        let ready = self.ready(durable, stopped);
        self.stage_through(ready, stopped)?;
        if self.oldest.is_none() {
            // Only ephemeral keys changed: there is nothing to commit.
            self.store.advance_committed(self.staged);
        }
        let pending = self.oldest.is_some();
        let hurry = self.hurried.take_if(|wanted| *wanted <= self.staged).is_some();
        let due = hurry && pending || self.flush_due_at().is_some_and(|due| due <= Instant::now());
        if due || (stopped && (pending || self.staged > self.newest_base())) {
            self.flush()?;
        } else if self.over_bound() {
            self.trim();
        }
        // Last, since no client waits for it.
        self.branch.record()?;
        Ok(())
    }

    /// Stages all entries up to a revision.
    fn stage_through(&mut self, durable: Revision, stopped: bool) -> Result<(), Failure> {
        while self.staged < durable {
            let (entries, outcomes) = self.next_entries(durable);
            let Some(last) = entries.last().map(|entry| entry.revision) else {
                // Only ephemeral changes are missing from the log.
                self.staged = durable;
                break;
            };
            let backlog = durable.since(self.staged);
            let group = self.batch_policy.group(backlog);
            let mut done = 0;
            while done < entries.len() {
                let end = done + Self::chunk(&entries[done..], outcomes.get(done..).unwrap_or_default(), group);
                self.stage(&entries[done..end], outcomes.get(done..end).unwrap_or_default())?;
                done = end;
                if self.branch.pending().pack_bytes >= MAX_PACK_BYTES {
                    self.flush()?;
                }
            }
            self.staged = last;
            if !stopped && self.flush_due_at().is_some_and(|due| due <= Instant::now()) {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Makes one commit of these entries.
    fn stage(&mut self, entries: &[Entry], outcomes: &[Outcome]) -> Result<(), Failure> {
        // Completes the record of an earlier publication.
        self.branch.record()?;
        let (first, last) = (&entries[0], &entries[entries.len() - 1]);
        let (changes, clients) = self.changes(entries)?;
        let count = changes.len();
        if count > 0 {
            let time = UNIX_EPOCH + Duration::from_millis(last.time_ms.max(0) as u64);
            self.join_first(&changes, time)?;
            let started = Instant::now();
            let actors = self.attributions(entries, outcomes, &changes);
            let revisions =
                Revisions { first: first.revision.get(), last: last.revision.get(), time, clients, changes };
            let span = self.trace.commit(first.revision, last.revision, count);
            span.in_scope(|| self.branch.commit_of(&revisions, &actors)).inspect_err(|_| failed(&span))?;
            self.batch_policy.observe(started.elapsed(), count);
            self.oldest.get_or_insert(started);
            self.counters.revisions.fetch_add(entries.len() as u64, Ordering::Relaxed);
        }
        self.staged = last.revision;
        if let Some(audit) = &self.audit {
            audit.staged(entries, outcomes, Instant::now());
        }
        Ok(())
    }

    /// Returns when the open pack should be written, including a pause that a client requested.
    fn flush_due_at(&self) -> Option<Instant> {
        let due = self.own_flush_due_at()?;
        Some(self.store.held().map_or(due, |held| due.max(held)))
    }

    /// Returns when the open pack should be written, without a requested pause.
    fn own_flush_due_at(&self) -> Option<Instant> {
        let Some(oldest) = self.oldest else {
            let idle = self.staged > self.newest_base();
            let interval = if self.over_bound() { MIN_FLUSH_INTERVAL } else { IDLE_FLUSH_INTERVAL };
            return idle.then(|| self.budget.last_flush() + interval);
        };
        if let Some(interval) = self.settings.flush_interval {
            // After the first change, others follow at the interval, or later if the disk is slow: every reader searches all packs.
            let pause = interval.max(FLUSH_SHARE * self.flush_took);
            return Some((oldest + interval.min(GATHER)).max(self.budget.last_flush() + pause));
        }
        Some(self.budget.due_at(&self.branch.pending(), oldest, Instant::now()))
    }

    fn over_bound(&self) -> bool {
        self.store.segments().bytes() > self.settings.max_journal_bytes
    }

    fn newest_base(&self) -> Revision {
        self.bases.back().map_or(Revision::ZERO, |(revision, _)| *revision)
    }

    fn flush(&mut self) -> Result<(), Failure> {
        let state = State {
            revision: self.staged.get(),
            compact_revision: self.store.compacted().get(),
            incarnation: hex(&self.incarnation),
            // Includes the leases that keys refer to at this revision, or the metadata would be inconsistent.
            leases: self.store.leases_at(self.staged),
        };
        let pending = self.branch.pending();
        let next = self.branch.next();
        self.heads.send_if_modified(|head| {
            head.next = next;
            // No receiver needs to wake up.
            false
        });
        let (span, started) = (self.trace.flush(self.staged), Instant::now());
        let flushed = span.in_scope(|| self.branch.publish(&state)).inspect_err(|_| failed(&span))?;
        self.flush_took = started.elapsed();
        self.counters.flush_seconds.observe(self.flush_took.as_secs_f64());
        span.record("gitcd.commits", flushed.data_commits).record("gitcd.bytes", flushed.pack_bytes);
        self.budget.flushed(&pending, started, Instant::now());
        self.counters.commits.fetch_add(flushed.data_commits as u64, Ordering::Relaxed);
        self.counters.packs.fetch_add(1, Ordering::Relaxed);
        self.counters.pack_bytes.fetch_add(flushed.pack_bytes, Ordering::Relaxed);
        let metadata = object::bytes(flushed.pair.metadata);
        self.bases.push_back((self.staged, metadata));
        self.store.committed(self.staged, metadata);
        if let Some(audit) = &self.audit {
            audit.flushed(self.staged);
        }
        self.oldest = None;
        let (revision, data, foreign) = (self.staged, flushed.pair.data, self.branch.foreign());
        self.heads.send_modify(|head| *head = Head { revision, data, foreign, ..*head });
        drop(span);
        self.trace.end();
        self.trim();
        Ok(())
    }

    /// Reopens the repository: after an error, memory may be ahead of it.
    fn reopen(&mut self) -> Result<(), Failure> {
        let gone = || Failure::Lasting(format!("{} no longer exists", self.config.data_reference));
        let mut branch = Branch::open(self.config.clone())?.ok_or_else(gone)?;
        keep_open(&mut branch, &self.settings);
        self.staged = Revision::new(branch.state().revision).max(self.floor);
        self.branch = branch;
        self.oldest = None;
        self.waits_until = None;
        self.trace.end();
        Ok(())
    }

    fn wait(&self, time: Duration) {
        self.store.wait_for_stop(Instant::now() + time);
    }
}

fn keep_open(branch: &mut Branch, settings: &Settings) {
    if settings.flush_interval.is_some() {
        branch.keep_packs_open(OPEN_PACK_BYTES);
    }
}

/// Why a commit failed.
#[derive(Debug)]
enum Failure {
    /// A retry may succeed: the disk is full, or a lock is held.
    Passing(String),
    /// An operator has to intervene.
    Lasting(String),
}

impl From<CommitError> for Failure {
    fn from(error: CommitError) -> Self {
        let text = chain(&error);
        match error {
            CommitError::Failed => Self::Passing(text),
            _ => Self::Lasting(text),
        }
    }
}

impl From<FlushError> for Failure {
    fn from(error: FlushError) -> Self {
        let text = chain(&error);
        match error {
            FlushError::ForeignChange { .. } | FlushError::Reference(RefError::Moved { .. }) => Self::Lasting(text),
            _ => Self::Passing(text),
        }
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        let text = chain(&error);
        match error {
            OpenError::Io { .. } | OpenError::Reference(_) | OpenError::CommittedHeads(_) => Self::Passing(text),
            _ => Self::Lasting(text),
        }
    }
}

fn failed(span: &tracing::Span) {
    span.record("otel.status_code", "ERROR");
}

struct PoisonOnPanic(Arc<Store>);

impl Drop for PoisonOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.poison("the committer panicked; see the log");
        }
    }
}
