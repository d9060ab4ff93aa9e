//! The store of one branch: what is read, and the one writer that changes it.
//!
//! A write is sent to the writer thread, which evaluates it against the newest state ([`txn`]), applies it
//! to the [`index`], makes it durable with everything else that came in meanwhile, and only then publishes it:
//! to readers by raising the durable revision, to watchers through the [hub](crate::hub), to the client by an
//! answer. Reads answer at the durable revision, whatever the writer has already applied beyond it.

pub mod alarms;
pub mod amounts;
mod counters;
mod error;
mod expiry;
pub mod hub;
pub mod index;
pub mod lease;
pub mod log;
pub mod merge;
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

use bytes::Bytes;
use gitcd_core::fence::Gate;
use gitcd_core::revision::Revision;
use gitcd_journal::{self as journal, Segments};
use parking_lot::{Condvar, Mutex, RwLock};
use tokio::sync::{mpsc, oneshot};

use self::alarms::Alarms;
use self::index::{Index, Size};
use self::lease::Leases;
use self::log::Entry;
use self::progress::Progress;
use self::query::{Found, Range, View};
use self::standby::Standby;
use self::txn::{Done, Op};
use self::version::Version;
use crate::hub::Hub;

pub use counters::Counters;
pub use error::Error;
pub use writer::Limits;

/// The store of one branch. Cheap to share; dropped last by [`Store::stop`].
#[derive(Debug)]
pub struct Store {
    index: RwLock<Index>,
    leases: Mutex<Leases>,
    /// Reads answer here. Raised only under the hub's lock, so that no watcher misses the writes in between.
    durable: AtomicI64,
    segments: Arc<Segments>,
    max_journal_bytes: u64,
    hub: Arc<Hub>,
    commands: mpsc::Sender<writer::Command>,
    progress: Mutex<Progress>,
    /// Rung when there is something new to commit.
    published: Condvar,
    poisoned: Mutex<Option<String>>,
    /// Closed while this server may not acknowledge anything; none if nobody else can be the writer.
    gate: OnceLock<Arc<Gate>>,
    /// It shows what another server writes, and takes nothing.
    standby: Option<Standby>,
    lease_granted: tokio::sync::Notify,
    alarms: Alarms,
    /// Rung when writes work again after there was no room for one.
    room: tokio::sync::Notify,
    /// Figures for metrics.
    pub counters: Counters,
}

/// The state that recovery found, for [`Store::start`].
#[derive(Debug)]
pub struct Start {
    /// All keys, with the log since the compaction.
    pub index: Index,
    /// All leases; keys are attached by the store.
    pub leases: Leases,
    /// Everything up to here is in Git.
    pub committed: Revision,
    /// The end of the journal.
    pub journal: journal::Writer,
    /// The journal's segments.
    pub segments: Arc<Segments>,
    /// Superseded versions; the value has left memory if the journal has it.
    pub superseded: Vec<Weak<Version>>,
    /// Raised alarms.
    pub alarms: Alarms,
    /// Merges that are not in Git yet, oldest first.
    pub merges: Vec<merge::Merge>,
}

/// What a store is made of.
struct Parts {
    index: Index,
    leases: Leases,
    segments: Arc<Segments>,
    max_journal_bytes: u64,
    commands: mpsc::Sender<writer::Command>,
    progress: Progress,
    alarms: Alarms,
    standby: Option<Standby>,
}

impl Store {
    /// Starts the writer thread.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start(start: Start, limits: Limits) -> std::io::Result<(Arc<Self>, Handle)> {
        let (writer, inbox) = Self::assemble(start, limits);
        let store = writer.store().clone();
        let thread = writer.spawn(inbox)?;
        Ok((store, Handle { thread }))
    }

    /// The store, held by its writer, which does not run yet.
    fn assemble(start: Start, limits: Limits) -> (writer::Writer, mpsc::Receiver<writer::Command>) {
        let (commands, inbox) = mpsc::channel(limits.queue);
        let Start { index, mut leases, committed, journal, segments, superseded, alarms, merges } = start;
        for version in index.range(&index::KeyRange::From(Bytes::new()), index.revision()) {
            if version.lease != 0 && leases.find(version.lease).is_none() {
                // It ended, but what recovery started from was written before its keys went with it: now they go.
                leases.grant(version.lease, lease::MIN_TTL, Instant::now());
            }
            leases.attach(&version.key, 0, version.lease);
        }
        let progress = Progress::new(committed, merges);
        let max_journal_bytes = limits.max_journal_bytes;
        let parts = Parts { index, leases, segments, max_journal_bytes, commands, progress, alarms, standby: None };
        let store = Self::build(parts);
        (writer::Writer::new(store, journal, limits, superseded), inbox)
    }

    fn build(parts: Parts) -> Arc<Self> {
        let Parts { index, leases, segments, max_journal_bytes, commands, progress, alarms, standby } = parts;
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
            gate: OnceLock::new(),
            standby,
            lease_granted: tokio::sync::Notify::new(),
            alarms,
            room: tokio::sync::Notify::new(),
            counters: Counters::default(),
        };
        store.measure(store.index.read().size());
        Arc::new(store)
    }

    /// The newest revision that is durable, which all reads, headers and watches go by.
    pub fn revision(&self) -> Revision {
        Revision::new(self.durable.load(Ordering::Acquire))
    }

    /// History below this is gone.
    pub fn compacted(&self) -> Revision {
        self.index.read().compacted()
    }

    /// Keys in the index and writes in the log, for metrics.
    pub fn sizes(&self) -> (usize, usize) {
        let index = self.index.read();
        (index.len(), index.log_len())
    }

    /// How much data there is, as of the last batch of writes. Takes no lock.
    pub fn data_size(&self) -> Size {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as usize;
        Size { total: load(&self.counters.data_bytes), live: load(&self.counters.live_bytes) }
    }

    fn measure(&self, size: Size) {
        self.counters.data_bytes.store(size.total as u64, Ordering::Relaxed);
        self.counters.live_bytes.store(size.live as u64, Ordering::Relaxed);
    }

    /// Alarms, which clients raise and clear.
    pub fn alarms(&self) -> &Alarms {
        &self.alarms
    }

    /// The watchers.
    pub fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    /// The journal's segments, to read old values.
    pub fn segments(&self) -> &Arc<Segments> {
        &self.segments
    }

    /// Answers a read at the newest durable revision or an older one. Does not wait for anything but, shortly,
    /// the writer; costs a walk over the range.
    ///
    /// # Errors
    /// [`Error::Future`], [`Error::Compacted`], [`Error::ValueLost`]; [`Error::Standby`] for the key that tells whether a store is well.
    pub fn range(&self, range: &Range) -> Result<Found, Error> {
        let started = Instant::now();
        self.counters.ranges.fetch_add(1, Ordering::Relaxed);
        let found = {
            let index = self.index.read();
            let current = self.revision();
            if self.standby.as_ref().is_some_and(|standby| standby.refuses(range)) {
                return Err(Error::Standby);
            }
            let checked = range.check(current, index.compacted());
            checked.and_then(|()| range.answer(View { index: &index, at: current, segments: &self.segments }))
        };
        self.counters.work.ranged(found.is_ok(), started.elapsed());
        found
    }

    /// Does one operation. What only reads is answered at once; a write when it is durable.
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

    /// Compacts history below `revision`.
    ///
    /// # Errors
    /// [`Error::Compacted`] if that was done before, [`Error::Future`].
    pub async fn compact(&self, revision: Revision) -> Result<Revision, Error> {
        self.send(|reply| writer::Command::Compact { revision, reply }).await
    }

    /// Grants a lease; `id` 0 chooses one. Returns id and time to live in seconds.
    ///
    /// # Errors
    /// [`Error::LeaseExists`].
    pub async fn grant(&self, id: i64, ttl: i64) -> Result<(i64, i64), Error> {
        let granted = self.send(|reply| writer::Command::Grant { id, ttl, reply }).await?;
        self.counters.work.lease_ttl.add(granted.1.max(0) as u64);
        self.lease_granted.notify_one();
        Ok(granted)
    }

    /// Revokes a lease and deletes its keys, in one revision of that client.
    ///
    /// # Errors
    /// [`Error::LeaseNotFound`].
    pub async fn revoke(&self, id: i64, client: Option<Arc<str>>) -> Result<Revision, Error> {
        self.send(|reply| writer::Command::Revoke { id, only_if_due: false, client, reply }).await
    }

    /// Starts a lease's time anew; its time to live in seconds, or `None` if it does not exist or has run out.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub async fn keep_alive(&self, id: i64) -> Result<Option<i64>, Error> {
        let left = self.send(|reply| writer::Command::KeepAlive { id, reply }).await?;
        self.counters.work.leases_renewed.fetch_add(u64::from(left.is_some()), Ordering::Relaxed);
        Ok(left)
    }

    /// What is known of a lease. Writes wait while its keys are copied, if they are asked for.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub async fn lease(&self, id: i64, keys: bool) -> Result<Option<lease::Report>, Error> {
        self.send(|reply| writer::Command::Lease { id, keys, reply }).await
    }

    /// All leases: id and granted time to live in seconds.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub async fn list_leases(&self) -> Result<Vec<(i64, i64)>, Error> {
        self.send(|reply| writer::Command::Leases { reply }).await
    }

    /// All leases as the writer has them, for snapshots and metrics: one that is being granted or revoked may be there or not.
    pub fn leases(&self) -> Vec<(i64, i64)> {
        self.leases.lock().list()
    }

    /// All leases that keys may have as of a revision, and younger ones, for the commit of that.
    pub fn leases_at(&self, revision: Revision) -> Vec<(i64, i64)> {
        self.leases.lock().list_at(revision)
    }

    /// Copies log entries from `first` on, durable ones only, at most `limit`.
    pub fn log(&self, first: Revision, limit: usize) -> Vec<Entry> {
        let index = self.index.read();
        let durable = self.revision();
        index.log_from(first).take(limit).take_while(|entry| entry.revision <= durable).cloned().collect()
    }

    /// Runs `read` over the index, at the durable revision that it is given. Writes wait meanwhile.
    pub fn with_index<T>(&self, read: impl FnOnce(&Index, Revision) -> T) -> T {
        let index = self.index.read();
        read(&index, self.revision())
    }

    /// From now on nothing is acknowledged while the gate is closed. Before the first request.
    pub fn fence(&self, gate: Arc<Gate>) {
        self.gate.set(gate).expect("a store is fenced once");
    }

    /// Whether what was read before this call was the newest then: if nobody else may have written meanwhile.
    ///
    /// # Errors
    /// [`Error::NoLease`].
    #[inline]
    pub fn newest(&self) -> Result<(), Error> {
        match self.gate.get() {
            Some(gate) if !gate.is_open() => Err(Error::NoLease),
            _ => Ok(()),
        }
    }

    /// The lease was got back: what waits for it becomes visible, and clients' leases begin anew, since nobody could keep them alive.
    pub async fn resume(&self) {
        // If the store has stopped, nobody waits any more.
        let _stopped = self.commands.send(writer::Command::Resume).await;
    }

    /// Refuses writes from now on. Reads go on.
    pub fn poison(&self, reason: &str) {
        let mut poisoned = self.poisoned.lock();
        if poisoned.is_none() {
            tracing::error!(reason, "writes are refused from now on");
            *poisoned = Some(reason.to_owned());
        }
    }

    /// The error that clients' writes get at the moment, whatever they are.
    pub fn unavailable(&self) -> Option<Error> {
        self.newest().err().or_else(|| self.refused())
    }

    /// The same, as far as it is this server's own doing.
    pub fn refused(&self) -> Option<Error> {
        if self.is_standby() {
            return Some(Error::Standby);
        }
        if let Some(reason) = self.poisoned() {
            return Some(Error::Poisoned(reason));
        }
        (self.segments.bytes() > self.max_journal_bytes).then_some(Error::NoSpace)
    }

    /// Why writes are refused until a restart, if they are.
    pub fn poisoned(&self) -> Option<String> {
        self.poisoned.lock().clone()
    }

    /// Raises the compact revision because the journal is too large, and says so.
    pub fn raise_compaction(&self, revision: Revision) {
        let (reply, _) = writer::Reply::channel();
        let _ = self.commands.try_send(writer::Command::Compact { revision, reply });
    }

    /// Asks the writer to bring evicted values of segments below `first_kept` back, then to delete those
    /// segments.
    pub fn trim_journal(&self, first_kept: u64) {
        let _ = self.commands.try_send(writer::Command::Trim { first_kept });
    }

    /// Stops taking writes; what was accepted is made durable. Then the committer is told to finish.
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
        if self.is_standby() {
            return Err(Error::Standby);
        }
        let (reply, answer) = writer::Reply::channel();
        self.commands.send(command(reply)).await.map_err(|_| Error::Stopped)?;
        answer.await.map_err(|_| Error::Stopped)?
    }
}

/// The writer thread, to wait for.
#[derive(Debug)]
pub struct Handle {
    thread: std::thread::JoinHandle<()>,
}

impl Handle {
    /// Waits for the writer to end, after [`Store::stop`].
    pub fn join(self) {
        if self.thread.join().is_err() {
            tracing::error!("the writer thread panicked");
        }
    }
}
