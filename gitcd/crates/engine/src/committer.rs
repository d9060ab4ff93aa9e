//! Turns the log into commits, in the background.
//!
//! The committer follows the store's log as a watcher does. It makes one commit for every revision while that costs
//! no more than its share of the processor, and one for several under load; it writes a pack when what this costs on disk is
//! in proportion to what it holds. A crash loses nothing: the journal has it.

mod budget;
mod merge;
mod pace;
mod trace;
mod trim;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use gitcd_core::error::chain;
use gitcd_core::revision::Revision;
use gitcd_mvcc::Store;
use gitcd_mvcc::log::Entry;
use gitcd_mvcc::snapshot::{Incarnation, hex};
use gitcd_mvcc::work::disk_seconds;
use gitcd_repo::branch::{Branch, CommitError, Config, FlushError, OpenError, Revisions, State};
use gitcd_repo::object;
use gitcd_repo::refs::RefError;
use prometheus_client::metrics::histogram::Histogram;
use tokio::sync::watch;

use self::budget::{Budget, MIN_FLUSH_INTERVAL};
pub use self::pace::Granularity;
use self::pace::Pace;
use self::trace::Trace;

/// Bounds of the committer.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How many revisions a commit takes.
    pub granularity: Granularity,
    /// Bytes a second that may go into rewriting unchanged parts of directories, unless writes would wait for long.
    pub overhead_bytes_per_second: u64,
    /// The journal is kept below this by raising the compact revision.
    pub max_journal_bytes: u64,
    /// Commits become visible after this time whatever they cost, for branches that others follow.
    pub flush_interval: Option<Duration>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            granularity: Granularity::default(),
            overhead_bytes_per_second: 26 << 10,
            max_journal_bytes: 512 << 20,
            flush_interval: None,
        }
    }
}

/// A pack is written at this size in any case; it is held in memory until then.
const MAX_PACK_BYTES: usize = 24 << 20;
/// Where others follow, a flush takes one part in so many of the time.
const FLUSH_SHARE: u32 = 3;
/// Where others follow, a pack goes on over many flushes up to this size.
const OPEN_PACK_BYTES: usize = 512 << 10;
/// An idle branch whose ephemeral keys change still moves the start of its journal so often.
const IDLE_FLUSH_INTERVAL: Duration = Duration::from_mins(10);
/// Entries taken from the log at a time.
const TAKE: usize = 4096;
/// After an error, such as a full disk, the committer tries again in this time.
const RETRY: Duration = Duration::from_secs(2);

/// Figures for metrics.
#[derive(Debug)]
pub struct Counters {
    /// Time for each flush: pack, references, fsyncs.
    pub flush_seconds: Histogram,
    /// Data commits made.
    pub commits: AtomicU64,
    /// Revisions in them.
    pub revisions: AtomicU64,
    /// Packs written.
    pub packs: AtomicU64,
    /// Bytes in them.
    pub pack_bytes: AtomicU64,
    /// Failed attempts.
    pub failures: AtomicU64,
}

impl Default for Counters {
    fn default() -> Self {
        let none = AtomicU64::default;
        let (commits, revisions, packs, pack_bytes, failures) = (none(), none(), none(), none(), none());
        Self { flush_seconds: disk_seconds(), commits, revisions, packs, pack_bytes, failures }
    }
}

/// Where a branch is in Git.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Everything up to here is in `data`.
    pub revision: Revision,
    /// The data commit.
    pub data: git2::Oid,
    /// What the data reference is about to move to: not somebody else's either.
    pub next: git2::Oid,
    /// How many merges were committed since the start.
    pub merges: u64,
    /// What somebody else put on the data reference, and is to be merged.
    pub foreign: Option<git2::Oid>,
}

impl Head {
    /// Whether there is nothing in one that is not in the other, to whoever follows the branch.
    pub fn is_at(&self, other: &Self) -> bool {
        (self.revision, self.data, self.foreign) == (other.revision, other.data, other.foreign)
    }
}

/// The committer of one branch, before it starts.
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
    /// Pairs in Git from which replay can start, oldest first.
    bases: VecDeque<(Revision, [u8; 20])>,
    /// Everything up to here is in the open pack or in Git.
    staged: Revision,
    /// Nothing below this is in the log: the branch resumed there.
    floor: Revision,
    budget: Budget,
    /// How long the last flush took.
    flush_took: Duration,
    /// When the oldest revision of the open pack was staged.
    oldest: Option<Instant>,
    pace: Pace,
    trace: Trace,
}

impl Committer {
    /// Takes over a branch. `bases` are the pairs that recovery found.
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
        let heads =
            watch::Sender::new(Head { revision: staged, data, next: data, merges: 0, foreign: branch.foreign() });
        Self {
            heads,
            folder: crate::recovery::state_folder(&config),
            budget: Budget::new(settings.overhead_bytes_per_second, Instant::now()),
            pace: Pace::new(settings.granularity),
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
        }
    }

    /// Where the branch is in Git, and every change of that.
    pub fn heads(&self) -> watch::Receiver<Head> {
        self.heads.subscribe()
    }

    /// Starts the thread. It ends, with everything committed, after the store has stopped.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn spawn(self) -> std::io::Result<std::thread::JoinHandle<bool>> {
        std::thread::Builder::new().name("committer".into()).spawn(move || {
            // A dead committer must not look healthy.
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
                // Whether room can be made must not depend on the next write, which may be refused.
                let soon = Instant::now() + MIN_FLUSH_INTERVAL;
                until = Some(until.map_or(soon, |until| until.min(soon)));
            }
            let (durable, stopped) = self.store.wait_for_writes(self.staged, until);
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

    /// Leaves it to a person: trying again cannot help, and writes that never reach Git must not be taken silently.
    fn give_up(&self, reason: &str) -> bool {
        self.counters.failures.fetch_add(1, Ordering::Relaxed);
        self.store.poison(reason);
        false
    }

    /// Stages what is new, flushes if it is time.
    fn step(&mut self, durable: Revision, stopped: bool) -> Result<(), Failure> {
        let hurry = self.store.take_hurry();
        // A merge is told of a moment before its writes are durable.
        while let Some(merge) = self.store.next_merge().filter(|merge| merge.last() <= self.store.revision()) {
            self.stage_through(merge.before(), stopped)?;
            self.merge(&merge)?;
            self.store.merged();
            self.heads.send_modify(|head| head.merges += 1);
        }
        self.stage_through(durable, stopped)?;
        if self.oldest.is_none() {
            // Only ephemeral keys changed: there is nothing to commit.
            self.store.advance_committed(self.staged);
        }
        let pending = self.oldest.is_some();
        let due = hurry && pending || self.flush_due_at().is_some_and(|due| due <= Instant::now());
        if due || (stopped && (pending || self.staged > self.newest_base())) {
            self.flush()?;
        } else if self.over_bound() {
            self.trim();
        }
        // Those who wait for commits have been told of them.
        self.branch.record()?;
        Ok(())
    }

    /// Stages everything up to a revision.
    fn stage_through(&mut self, durable: Revision, stopped: bool) -> Result<(), Failure> {
        while self.staged < durable {
            let entries = self.store.log(self.staged.next(), TAKE.min(durable.since(self.staged)));
            let Some(last) = entries.last().map(|entry| entry.revision) else {
                // Only what need not be in Git has left the log.
                self.staged = durable;
                break;
            };
            let backlog = durable.since(self.staged);
            let group = self.pace.group(backlog);
            for chunk in entries.chunks(group) {
                self.stage(chunk)?;
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

    /// One commit.
    fn stage(&mut self, entries: &[Entry]) -> Result<(), Failure> {
        // Of what was published before.
        self.branch.record()?;
        let (first, last) = (&entries[0], &entries[entries.len() - 1]);
        let (changes, clients) = self.changes(entries)?;
        let count = changes.len();
        if count > 0 {
            let time = UNIX_EPOCH + Duration::from_millis(last.time_ms.max(0) as u64);
            self.join_first(&changes, time)?;
            let started = Instant::now();
            let revisions =
                Revisions { first: first.revision.get(), last: last.revision.get(), time, clients, changes };
            let span = self.trace.commit(first.revision, last.revision, count);
            span.in_scope(|| self.branch.commit(&revisions)).inspect_err(|_| failed(&span))?;
            self.pace.observe(started.elapsed(), count);
            self.oldest.get_or_insert(started);
            self.counters.revisions.fetch_add(entries.len() as u64, Ordering::Relaxed);
        }
        self.staged = last.revision;
        Ok(())
    }

    /// When the open pack should be written.
    fn flush_due_at(&self) -> Option<Instant> {
        let due = self.own_flush_due_at()?;
        Some(self.store.held().map_or(due, |held| due.max(held)))
    }

    /// The same if nobody asked for a pause.
    fn own_flush_due_at(&self) -> Option<Instant> {
        let Some(oldest) = self.oldest else {
            let idle = self.staged > self.newest_base();
            let interval = if self.over_bound() { MIN_FLUSH_INTERVAL } else { IDLE_FLUSH_INTERVAL };
            return idle.then(|| self.budget.last_flush() + interval);
        };
        if let Some(interval) = self.settings.flush_interval {
            // Never more than a part of the time, whatever the disk can do: packs are looked through by every reader.
            return Some((oldest + interval).max(self.budget.last_flush() + FLUSH_SHARE * self.flush_took));
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
            // Without those that keys have there, the metadata would contradict itself.
            leases: self.store.leases_at(self.staged),
        };
        let pending = self.branch.pending();
        let next = self.branch.next();
        self.heads.send_if_modified(|head| {
            head.next = next;
            // Nobody needs to be woken.
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
        self.oldest = None;
        let (revision, data, foreign) = (self.staged, flushed.pair.data, self.branch.foreign());
        self.heads.send_modify(|head| *head = Head { revision, data, foreign, ..*head });
        drop(span);
        self.trace.end();
        self.trim();
        Ok(())
    }

    /// After an error memory may be ahead of the repository: start again from what is there.
    fn reopen(&mut self) -> Result<(), Failure> {
        let gone = || Failure::Lasting(format!("{} does not exist any more", self.config.data_reference));
        let mut branch = Branch::open(self.config.clone())?.ok_or_else(gone)?;
        keep_open(&mut branch, &self.settings);
        self.staged = Revision::new(branch.state().revision).max(self.floor);
        self.branch = branch;
        self.oldest = None;
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

/// Why something was not committed.
#[derive(Debug)]
enum Failure {
    /// It may work in a moment: the disk is full, somebody holds a lock.
    Passing(String),
    /// It will not work until a person has looked.
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
            OpenError::Io { .. } | OpenError::Reference(_) | OpenError::Pair(_) => Self::Passing(text),
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

/// Seconds since the oldest write that is not in Git.
pub fn lag(store: &Store) -> Duration {
    let committed = store.committed_revision();
    let oldest = store.with_index(|index, durable| {
        index.log_from(committed.next()).next().filter(|entry| entry.revision <= durable).map(|entry| entry.time_ms)
    });
    let Some(time_ms) = oldest else { return Duration::ZERO };
    let written = UNIX_EPOCH + Duration::from_millis(time_ms.max(0) as u64);
    SystemTime::now().duration_since(written).unwrap_or(Duration::ZERO)
}
