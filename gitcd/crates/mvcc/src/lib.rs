//! The store of one branch: concurrent reads, and a single writer.
//!
//! A write is sent to the writer thread, which evaluates it against the newest state ([`txn`]), applies it to the [`index`],
//! makes it durable with all other pending writes, and only then publishes it: to readers by raising the durable revision, to
//! watchers through the [`hub`], and to the client with an answer. Reads are answered at the durable revision, whatever
//! the writer has applied beyond it.

pub mod alarms;
mod counters;
pub mod doubling_histogram;
mod error;
mod expiry;
pub mod hub;
pub mod index;
pub mod lease;
mod lease_requests;
pub mod log;
pub mod merge;
mod past;
mod progress;
pub mod query;
pub mod ranges;
pub mod snapshot;
pub mod standby;
pub mod txn;
pub mod version;
pub mod work;
mod writer;

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;

use gitcd_core::blocking;
use gitcd_core::fence::Fence;
use gitcd_core::revision::Revision;
use gitcd_journal::{self as journal, Segments};
use parking_lot::{Condvar, Mutex, RwLock};
use tokio::sync::{mpsc, oneshot};

use self::alarms::Alarms;
use self::index::{Index, Size};
use self::lease::Leases;
use self::log::Entry;
use self::past::Past;
use self::progress::Progress;
use self::query::{Found, Range, View};
use self::standby::Standby;
use self::txn::{Done, Op};
use self::version::Version;
use crate::hub::Hub;

pub use counters::Counters;
pub use error::Error;
pub use writer::Limits;

/// The store of one branch, shared by reference; [`Store::stop`] stops it.
///
/// ```
/// use std::sync::Arc;
///
/// use gitcd_core::revision::Revision;
/// use gitcd_journal::{Segments, Writer};
/// use gitcd_mvcc::alarms::Alarms;
/// use gitcd_mvcc::index::{Index, KeyRange};
/// use gitcd_mvcc::lease::Leases;
/// use gitcd_mvcc::query::{Filter, Range};
/// use gitcd_mvcc::txn::{Op, Put};
/// use gitcd_mvcc::{Limits, Start, Store};
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// // An empty store; `gitcd-engine` recovers one from Git and the journal.
/// let segments = Arc::new(Segments::default());
/// let start = Start {
///     index: Index::new(Revision::INITIAL),
///     leases: Leases::default(),
///     committed: Revision::INITIAL,
///     journal: Writer::create(folder.path(), [7; 16], 0, 1 << 20, segments.clone())?,
///     segments,
///     superseded: Vec::new(),
///     alarms: Alarms::default(),
///     merges: Vec::new(),
/// };
/// let (store, writer) = Store::start(start, Limits::default())?;
///
/// // The write is durable, and visible to all reads, when this returns.
/// let put = Put { key: "/a".into(), value: Some("1".into()), lease: Some(0), previous: false };
/// store.execute(Op::Put(put), Some("curl/8.19.0".into())).await?;
/// assert_eq!(store.revision(), Revision::new(2));
///
/// let found = store.range(&Range {
///     keys: KeyRange::One("/a".into()),
///     revision: None,
///     limit: 0,
///     count_only: false,
///     sort: None,
///     filter: Filter::default(),
///     known_count: None,
/// })?;
/// assert_eq!(found.pairs[0].value(store.segments())?, "1");
///
/// store.stop().await;
/// writer.join();
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Store {
    index: RwLock<Index>,
    leases: Mutex<Leases>,
    /// The revision of reads. Raised only under the hub's lock, so that no watcher misses the writes in between.
    durable: AtomicI64,
    segments: Arc<Segments>,
    max_journal_bytes: u64,
    hub: Arc<Hub>,
    commands: mpsc::Sender<writer::Command>,
    progress: Mutex<Progress>,
    /// Notified when there is something new to commit.
    published: Condvar,
    poisoned: Mutex<Option<String>>,
    /// The fence: closed while this server must not acknowledge writes. Unset if there can be no other writer.
    fence: OnceLock<Arc<Fence>>,
    /// Set if this store accepts no writes.
    read_only: Option<ReadOnly>,
    lease_granted: tokio::sync::Notify,
    alarms: Alarms,
    /// Notified when writes succeed again after ENOSPC.
    room: tokio::sync::Notify,
    /// Counters for metrics.
    pub counters: Counters,
}

/// The recovered state, for [`Store::start`].
#[derive(Debug)]
pub struct Start {
    /// All keys, with the log since the compaction.
    pub index: Index,
    /// All leases; keys are attached by the store.
    pub leases: Leases,
    /// The last revision in Git.
    pub committed: Revision,
    /// The end of the journal.
    pub journal: journal::Writer,
    /// The journal's segments.
    pub segments: Arc<Segments>,
    /// Superseded versions; values that the journal has are evicted from memory.
    pub superseded: Vec<Weak<Version>>,
    /// Raised alarms.
    pub alarms: Alarms,
    /// Merges that are not in Git yet, oldest first.
    pub merges: Vec<merge::Merge>,
}

/// The parts of a store.
struct Parts {
    index: Index,
    leases: Leases,
    segments: Arc<Segments>,
    max_journal_bytes: u64,
    commands: mpsc::Sender<writer::Command>,
    progress: Progress,
    alarms: Alarms,
    read_only: Option<ReadOnly>,
}

/// Why a store accepts no writes.
#[derive(Debug)]
enum ReadOnly {
    /// It follows another server's writes.
    Standby(Standby),
    /// It shows the past.
    Past(Past),
}

impl Store {
    /// Starts the writer thread.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub fn start(start: Start, limits: Limits) -> std::io::Result<(Arc<Self>, Handle)> {
        let (writer, inbox) = Self::assemble(start, limits);
        let store = writer.store().clone();
        let thread = writer.spawn(inbox)?;
        Ok((store, Handle { thread }))
    }

    /// Assembles the store and its writer, without starting the writer.
    fn assemble(start: Start, limits: Limits) -> (writer::Writer, mpsc::Receiver<writer::Command>) {
        let (commands, inbox) = mpsc::channel(limits.queue);
        let Start { index, mut leases, committed, journal, segments, superseded, alarms, merges } = start;
        leases.attach_all(&index);
        let progress = Progress::new(committed, merges);
        let max_journal_bytes = limits.max_journal_bytes;
        let parts = Parts { index, leases, segments, max_journal_bytes, commands, progress, alarms, read_only: None };
        let store = Self::build(parts);
        (writer::Writer::new(store, journal, limits, superseded), inbox)
    }

    fn build(parts: Parts) -> Arc<Self> {
        let Parts { index, leases, segments, max_journal_bytes, commands, progress, alarms, read_only } = parts;
        let store = Self {
            durable: AtomicI64::new(index.revision().get()),
            hub: Arc::new(Hub::default()),
            index: RwLock::new(index),
            leases: Mutex::new(leases),
            segments,
            max_journal_bytes,
            commands,
            progress: Mutex::new(progress),
            published: Condvar::new(),
            poisoned: Mutex::new(None),
            fence: OnceLock::new(),
            read_only,
            lease_granted: tokio::sync::Notify::new(),
            alarms,
            room: tokio::sync::Notify::new(),
            counters: Counters::default(),
        };
        store.measure(store.index.read().size());
        Arc::new(store)
    }

    /// Returns the newest durable revision, which all reads, headers and watches use.
    pub fn revision(&self) -> Revision {
        Revision::new(self.durable.load(Ordering::Acquire))
    }

    /// Returns the compact revision, below which there is no history.
    pub fn compacted(&self) -> Revision {
        self.index.read().compacted()
    }

    /// Returns the number of keys in the index and of writes in the log, for metrics.
    pub fn sizes(&self) -> (usize, usize) {
        let index = self.index.read();
        (index.len(), index.log_len())
    }

    /// Returns the size of the data, as of the last batch of writes. Takes no lock.
    pub fn data_size(&self) -> Size {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as usize;
        Size { total: load(&self.counters.data_bytes), live: load(&self.counters.live_bytes) }
    }

    fn measure(&self, size: Size) {
        self.counters.data_bytes.store(size.total as u64, Ordering::Relaxed);
        self.counters.live_bytes.store(size.live as u64, Ordering::Relaxed);
    }

    /// Returns the alarms.
    pub fn alarms(&self) -> &Alarms {
        &self.alarms
    }

    /// Returns the hub with the watchers.
    pub fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    /// Returns the journal's segments, for reading back old values.
    pub fn segments(&self) -> &Arc<Segments> {
        &self.segments
    }

    /// Answers a read at the newest durable revision or an older one. Waits only briefly for the writer; takes time for the keys
    /// of the range.
    ///
    /// # Errors
    /// [`Error::Future`], [`Error::Compacted`], [`Error::ValueLost`]; [`Error::Standby`] for the health key on a standby.
    pub fn range(&self, range: &Range) -> Result<Found, Error> {
        let started = Instant::now();
        self.counters.ranges.fetch_add(1, Ordering::Relaxed);
        let found = {
            let index = self.index.read();
            let current = self.revision();
            if self.following().is_some_and(|standby| standby.refuses(range)) {
                return Err(Error::Standby);
            }
            let checked = range.check(current, index.compacted());
            checked.and_then(|()| range.answer(View { index: &index, at: current, segments: &self.segments }))
        };
        self.counters.work.ranged(found.is_ok(), started.elapsed());
        found
    }

    /// Merges another branch, atomically for readers. Returns when the merge is durable; it is committed to Git later, see
    /// [`Store::merged`].
    ///
    /// # Errors
    /// [`Error`]; nothing was changed.
    pub async fn merge(self: &Arc<Self>, request: merge::Request) -> Result<merge::Done, Error> {
        let store = Arc::clone(self);
        let prepared = blocking::run("prepare a merge", move || store.prepare(request)).await??;
        self.send(|reply| writer::Command::Merge { prepared: Box::new(prepared), reply }).await
    }

    /// Executes one operation. Reads are answered immediately; writes when they are durable.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn execute(&self, op: Op, client: Option<Arc<str>>) -> Result<Done, Error> {
        if op.is_read_only() {
            let done = {
                let index = self.index.read();
                txn::read(&op, View { index: &index, at: self.revision(), segments: &self.segments })
            };
            return self.newest().and(done);
        }
        self.send(|reply| writer::Command::Write { op, client, reply }).await
    }

    /// Queues a write without waiting until it is durable. Writes take effect in the order in which these calls return, and those
    /// that are queued together share an fsync.
    ///
    /// # Errors
    /// [`Error::Stopped`], or that of a store that shows the past.
    pub async fn enqueue(&self, op: Op, client: Option<Arc<str>>) -> Result<QueuedWrite, Error> {
        self.submit(|reply| writer::Command::Write { op, client, reply }).await.map(QueuedWrite)
    }

    /// Compacts history below `revision`.
    ///
    /// # Errors
    /// [`Error::Compacted`] if `revision` is compacted already, [`Error::Future`].
    pub async fn compact(&self, revision: Revision) -> Result<Revision, Error> {
        self.send(|reply| writer::Command::Compact { revision, reply }).await
    }

    /// Returns durable log entries from `first` on, at most `limit`.
    pub fn log(&self, first: Revision, limit: usize) -> Vec<Entry> {
        let index = self.index.read();
        let durable = self.revision();
        index.log_from(first).take(limit).take_while(|entry| entry.revision <= durable).cloned().collect()
    }

    /// Calls `read` with the index and the durable revision. Blocks writes meanwhile.
    pub fn with_index<T>(&self, read: impl FnOnce(&Index, Revision) -> T) -> T {
        let index = self.index.read();
        read(&index, self.revision())
    }

    /// Sets the fence: nothing is acknowledged while it is closed. Must be called before the first request.
    pub fn fence(&self, fence: Arc<Fence>) {
        self.fence.set(fence).expect("a store is fenced once");
    }

    /// Confirms that what was read before this call was the newest state then: no other server can have written.
    ///
    /// # Errors
    /// [`Error::NoLease`].
    #[inline]
    pub fn newest(&self) -> Result<(), Error> {
        match self.fence.get() {
            Some(fence) if !fence.is_open() => Err(Error::NoLease),
            _ => Ok(()),
        }
    }

    /// Resumes after the lease was regained: writes in doubt become visible, and all client leases restart, since they could not
    /// be kept alive.
    pub async fn resume(&self) {
        // Not needed if the store has stopped.
        let _stopped = self.commands.send(writer::Command::Resume).await;
    }

    /// Refuses writes from now on. Reads continue.
    pub fn poison(&self, reason: &str) {
        let mut poisoned = self.poisoned.lock();
        if poisoned.is_none() {
            tracing::error!(reason, "writes are refused from now on");
            *poisoned = Some(reason.to_owned());
        }
    }

    /// Returns the error for all writes of clients, if writes are unavailable.
    pub fn unavailable(&self) -> Option<Error> {
        self.newest().err().or_else(|| self.refused())
    }

    /// Does the same as [`Self::unavailable`], but ignores the fence.
    pub fn refused(&self) -> Option<Error> {
        if self.is_standby() {
            return Some(Error::Standby);
        }
        if let Some(reason) = self.poisoned() {
            return Some(Error::Poisoned(reason));
        }
        (self.segments.bytes() > self.max_journal_bytes).then_some(Error::NoSpace)
    }

    /// Returns why writes are refused until a restart, if they are.
    pub fn poisoned(&self) -> Option<String> {
        self.poisoned.lock().clone()
    }

    /// Asks the writer to raise the compact revision, because the journal is too large.
    pub fn raise_compaction(&self, revision: Revision) {
        let (reply, _) = writer::Reply::channel();
        let _ = self.commands.try_send(writer::Command::Compact { revision, reply });
    }

    /// Asks the writer to read back evicted values from segments below `first_kept`, then to delete these segments.
    pub fn trim_journal(&self, first_kept: u64) {
        let _ = self.commands.try_send(writer::Command::Trim { first_kept });
    }

    /// Stops accepting writes, makes accepted ones durable, and then stops the committer and the watchers.
    pub async fn stop(&self) {
        let (reply, stopped) = oneshot::channel();
        if self.commands.send(writer::Command::Stop { reply }).await.is_ok() {
            let _ = stopped.await;
        }
    }

    fn finish(&self) {
        self.progress.lock().stopped = true;
        self.published.notify_all();
        self.hub.close();
    }

    async fn send<T>(&self, command: impl FnOnce(writer::Reply<T>) -> writer::Command) -> Result<T, Error> {
        self.submit(command).await?.await.map_err(|_| Error::Stopped)?
    }

    /// Sends a command without waiting for its answer. Commands that are submitted together share an fsync.
    async fn submit<T>(
        &self,
        command: impl FnOnce(writer::Reply<T>) -> writer::Command,
    ) -> Result<oneshot::Receiver<Result<T, Error>>, Error> {
        if let Some(error) = self.read_only() {
            return Err(error);
        }
        let (reply, answer) = writer::Reply::channel();
        self.commands.send(command(reply)).await.map_err(|_| Error::Stopped)?;
        Ok(answer)
    }
}

/// A write that [`Store::enqueue`] queued.
#[derive(Debug)]
pub struct QueuedWrite(oneshot::Receiver<Result<Done, Error>>);

impl QueuedWrite {
    /// Waits until the write is durable.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn done(self) -> Result<Done, Error> {
        self.0.await.map_err(|_| Error::Stopped)?
    }
}

/// The handle of the writer thread.
#[derive(Debug)]
pub struct Handle {
    thread: std::thread::JoinHandle<()>,
}

impl Handle {
    /// Waits for the writer thread to exit, after [`Store::stop`].
    pub fn join(self) {
        if self.thread.join().is_err() {
            tracing::error!("the writer thread panicked");
        }
    }
}
