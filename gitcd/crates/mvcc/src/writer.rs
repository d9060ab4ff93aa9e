//! The single writer: evaluate, apply, make durable, publish. One thread, and one fsync for all pending writes.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use gitcd_core::error::chain;
use gitcd_core::revision::Revision;
use gitcd_core::supervisor::fail_point;
use gitcd_journal::record::Record;
use gitcd_journal::{self as journal, AppendError, Position};
use tokio::sync::{mpsc, oneshot};

use self::answer::Answer;
pub(super) use self::answer::Reply;
use self::old::Old;
use super::lease::{Lease, Report};
use super::log::Entry;
use super::merge;
use super::txn::{Done, Op};
use super::version::Version;
use super::{Error, Store};
use crate::work::Applied;

mod answer;
mod held;
mod large;
mod old;
mod round;
#[cfg(test)]
pub(super) mod tests;

pub(super) use self::round::EXPIRY;
use self::round::Round;

/// Limits of the writer.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Length of the command queue.
    pub queue: usize,
    /// Number of commands that may share one fsync.
    pub batch: usize,
    /// Bytes of superseded values kept in memory; others are read back from the journal. Values that the journal no longer has
    /// count too, but are never evicted: there is at most one for each key, until the next compaction.
    pub old_value_bytes: usize,
    /// Journal size above which writes are refused, which happens only if commits fail for a long time.
    pub max_journal_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { queue: 1024, batch: 512, old_value_bytes: 64 << 20, max_journal_bytes: 1 << 30 }
    }
}

/// Size at which a frame accepts no further command.
const FRAME_BYTES: usize = 8 << 20;

/// A command for the writer.
#[derive(Debug)]
pub(super) enum Command {
    Write { op: Op, client: Option<Arc<str>>, reply: Reply<Done> },
    Merge { prepared: Box<merge::Prepared>, reply: Reply<merge::Done> },
    Grant { id: i64, ttl: i64, reply: Reply<(i64, i64)> },
    Revoke { id: i64, only_if_due: bool, client: Option<Arc<str>>, reply: Reply<Revision> },
    KeepAlive { id: i64, reply: Reply<Option<i64>> },
    Lease { id: i64, keys: bool, reply: Reply<Option<Report>> },
    Leases { reply: Reply<Vec<(i64, i64)>> },
    Compact { revision: Revision, reply: Reply<Revision> },
    Committed { revision: Revision, metadata: [u8; 20] },
    Trim { first_kept: u64 },
    Resume,
    Stop { reply: oneshot::Sender<()> },
}

impl Command {
    /// Returns the kind of write to record; `None` for a command that changes nothing.
    fn kind(&self) -> Option<Applied> {
        Some(match self {
            Self::Write { op: Op::Put(_), .. } => Applied::Put,
            Self::Write { op: Op::Delete(_), .. } => Applied::DeleteRange,
            Self::Write { .. } => Applied::Txn,
            Self::Merge { .. } => Applied::Merge,
            Self::Grant { .. } => Applied::LeaseGrant,
            Self::Revoke { .. } => Applied::LeaseRevoke,
            Self::Compact { .. } => Applied::Compaction,
            _ => return None,
        })
    }
}

/// A change to the leases in a batch, to be undone if the batch cannot be made durable.
enum LeaseChange {
    Granted(i64),
    Revoked(i64, Lease),
}

/// The changes and answers that become durable together.
#[derive(Default)]
struct Batch {
    answers: Vec<Answer>,
    leases: Vec<LeaseChange>,
    compact: Option<Revision>,
    merges: Vec<Arc<merge::Merge>>,
    /// Number of expired leases.
    expired: u64,
    first: Option<Revision>,
    /// Where the journal will have the values of this batch.
    positions: Vec<(Arc<Version>, Position)>,
}

pub(super) struct Writer {
    store: Arc<Store>,
    journal: journal::Writer,
    limits: Limits,
    old: Old,
    pruning: bool,
    /// When the running compaction was requested.
    compacting_since: Option<Instant>,
    /// The last batch found no space.
    full: bool,
    /// Writes in doubt: durable but not visible, because the writer lease ended in between.
    held: Option<Batch>,
    /// Closed once the next batch is durable.
    #[cfg(test)]
    closes: Option<Arc<gitcd_core::fence::Fence>>,
}

struct Finish(Arc<Store>);

impl Drop for Finish {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.poison("the writer thread panicked");
        }
        self.0.finish();
    }
}

impl Writer {
    pub(super) fn new(
        store: Arc<Store>,
        journal: journal::Writer,
        limits: Limits,
        superseded: Vec<Weak<Version>>,
    ) -> Self {
        let (old, pruning, full) = (Old::new(superseded), true, false);
        Self {
            store,
            journal,
            limits,
            old,
            pruning,
            compacting_since: None,
            full,
            held: None,
            #[cfg(test)]
            closes: None,
        }
    }

    pub(super) fn store(&self) -> &Arc<Store> {
        &self.store
    }

    pub(super) fn spawn(self, mut inbox: mpsc::Receiver<Command>) -> std::io::Result<std::thread::JoinHandle<()>> {
        std::thread::Builder::new().name("writer".into()).spawn(move || {
            // However this thread exits, those who wait for the store must be released.
            let _finish = Finish(self.store.clone());
            self.run(&mut inbox);
        })
    }

    fn run(mut self, inbox: &mut mpsc::Receiver<Command>) {
        let mut received = Vec::with_capacity(self.limits.batch);
        let mut commands = VecDeque::with_capacity(self.limits.batch);
        loop {
            // Prune while the queue is empty, a little at a time.
            if self.pruning && inbox.is_empty() && self.prune() {
                continue;
            }
            if commands.is_empty() {
                if inbox.blocking_recv_many(&mut received, self.limits.batch) == 0 {
                    return;
                }
                commands.extend(received.drain(..));
            }
            let stop = self.batch(&mut commands);
            if self.pruning {
                self.prune();
            }
            if let Some(reply) = stop {
                inbox.close();
                // Senders that have reserved a place in the queue may still send, and must be answered.
                while let Some(command) = inbox.blocking_recv() {
                    commands.push_back(command);
                }
                while !commands.is_empty() {
                    self.batch(&mut commands);
                }
                let _ = reply.send(());
                return;
            }
        }
    }

    /// Runs one round: `commands` up to the limit of a frame, one fsync, all answers.
    fn batch(&mut self, commands: &mut VecDeque<Command>) -> Option<oneshot::Sender<()>> {
        fail_point::pass("writer");
        let mut batch = Batch::default();
        let mut stop = None;
        let mut trim = None;
        let mut large = None;
        self.release();
        let refused = self.store.unavailable();
        self.journal.begin();
        {
            let store = self.store.clone();
            let mut index = store.index.write();
            let mut leases = store.leases.lock();
            let now_ms = now_ms();
            let (segment, base) = self.journal.value_base();
            let mut round = Round {
                index: &mut index,
                leases: &mut leases,
                segments: &store.segments,
                frame: self.journal.frame(),
                batch: &mut batch,
                segment,
                base,
                now_ms,
            };
            let empty = round.frame.len();
            let mut began = Instant::now();
            while round.frame.len() < FRAME_BYTES
                && let Some(command) = commands.pop_front()
            {
                match command {
                    Command::Merge { prepared, reply } if prepared.bytes() > large::BYTES => {
                        // It gets a batch of its own, and frames of its own.
                        if round.batch.answers.is_empty() && round.frame.len() == empty {
                            large = Some((prepared, reply));
                        } else {
                            commands.push_front(Command::Merge { prepared, reply });
                        }
                        break;
                    }
                    Command::Stop { reply } => stop = Some(reply),
                    Command::Trim { first_kept } => trim = Some(first_kept),
                    Command::Resume => round.leases.keep_all_alive(Instant::now()),
                    Command::Committed { revision, metadata } => {
                        Record::Committed { revision, metadata }.encode(round.frame);
                    }
                    command => {
                        let kind = command.kind();
                        round.command(command, refused.as_ref());
                        let ended = Instant::now();
                        if let Some(kind) = kind {
                            let succeeded = round.batch.answers.last().is_some_and(Answer::is_ok);
                            store.counters.work.applied(kind, succeeded, ended - began);
                        }
                        began = ended;
                    }
                }
            }
        }
        let durable = match large {
            None => self.make_durable(&mut batch),
            Some((prepared, reply)) => self.merge_in_parts(*prepared, reply, refused, &mut batch),
        };
        #[cfg(test)]
        if let Some(fence) = self.closes.take() {
            fence.close();
        }
        let answers = std::mem::take(&mut batch.answers);
        let outcome = durable.and_then(|()| self.show(batch));
        for answer in answers {
            answer.send(&outcome);
        }
        if let Some(first_kept) = trim {
            self.trim(first_kept);
        }
        stop
    }

    fn make_durable(&mut self, batch: &mut Batch) -> Result<(), Error> {
        if self.journal.is_empty() {
            return Ok(());
        }
        let started = Instant::now();
        let bytes = self.journal.frame().len();
        let last = self.store.index.read().revision();
        let span = answer::span(&batch.answers, bytes);
        match span.in_scope(|| self.journal.commit(last)) {
            Ok(_) => {
                self.count_frame(bytes, started);
                if std::mem::take(&mut self.full) {
                    self.store.room.notify_one();
                }
                Ok(())
            }
            Err(error) => {
                let answer = self.not_durable(&error, batch);
                span.record("otel.status_code", "ERROR");
                Err(answer)
            }
        }
    }

    /// Counts a durable frame, whose write began at `started`.
    fn count_frame(&self, bytes: usize, started: Instant) {
        let counters = &self.store.counters;
        counters.fsyncs.fetch_add(1, Ordering::Relaxed);
        counters.work.journal_writes.took(self.journal.write_took());
        counters.fsync_seconds.observe(started.elapsed().as_secs_f64());
        counters.journal_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Undoes a batch after a failed append, and returns the answer for its clients.
    fn not_durable(&mut self, error: &AppendError, batch: &mut Batch) -> Error {
        self.store.counters.failed_batches.fetch_add(1, Ordering::Relaxed);
        tracing::error!(error = chain(error), "cannot make writes durable");
        let given_up = self.journal.give_up();
        self.undo(batch);
        match given_up.as_ref().err().unwrap_or(error) {
            AppendError::NoSpace { .. } => {
                self.full = true;
                Error::NoSpace
            }
            broken @ AppendError::Broken { .. } => {
                let reason = chain(broken);
                self.store.poison(&reason);
                Error::Poisoned(reason)
            }
        }
    }

    /// Undoes a batch that could not be made durable: it was never visible.
    fn undo(&self, batch: &mut Batch) {
        let mut index = self.store.index.write();
        let mut leases = self.store.leases.lock();
        batch.positions.clear();
        batch.merges.clear();
        batch.compact = None;
        // Leases first: keys that are moved to or from them need them.
        for change in batch.leases.drain(..).rev() {
            match change {
                LeaseChange::Granted(id) => drop(leases.remove(id)),
                LeaseChange::Revoked(id, lease) => leases.insert(id, lease),
            }
        }
        while batch.first.is_some_and(|first| index.revision() >= first) {
            let Some(entry) = index.undo() else { break };
            for change in entry.changes() {
                let before = change.previous.as_ref().map_or(0, |previous| previous.lease);
                leases.attach(&change.version.key, change.version.lease, before);
            }
        }
    }

    /// Makes a durable batch visible: first marks the watchers, then raises the revision.
    fn publish(&mut self, batch: &mut Batch) {
        for (version, at) in batch.positions.drain(..) {
            version.set_position(at);
        }
        // Before the revision is raised: a read at a revision after the compaction must not read below it.
        if let Some(revision) = batch.compact {
            self.store.index.write().compact(revision);
        }
        // The committer must see a merge before its writes.
        let has_merged = !batch.merges.is_empty();
        batch.merges.drain(..).for_each(|merge| self.store.add_merge(merge));
        if has_merged && batch.first.is_none() {
            self.store.published.notify_all();
        }
        if let Some(first) = batch.first {
            let store = self.store.clone();
            let index = store.index.read();
            let last = index.revision();
            store.hub.publish(index.log_from(first), || store.durable.store(last.get(), Ordering::Release));
            let (mut puts, mut deletes, mut txns, mut put_bytes) = (0, 0, 0, 0);
            for entry in index.log_from(first) {
                self.supersede(entry);
                txns += u64::from(entry.changes().len() > 1);
                for change in entry.changes() {
                    if !change.version.is_tombstone() {
                        put_bytes += change.version.key.len() as u64 + u64::from(change.version.value_length);
                    }
                    *if change.version.is_tombstone() { &mut deletes } else { &mut puts } += 1;
                }
            }
            let counters = &store.counters;
            for (counter, number) in [(&counters.puts, puts), (&counters.deletes, deletes), (&counters.txns, txns)] {
                counter.fetch_add(number, Ordering::Relaxed);
            }
            counters.work.put_bytes.fetch_add(put_bytes, Ordering::Relaxed);
            store.measure(index.size());
            drop(index);
            self.evict();
            // Take the lock, so that a waiter either sees the new state or is waiting already.
            drop(store.progress.lock());
            store.published.notify_all();
        }
        for change in &batch.leases {
            let counters = &self.store.counters;
            let counter = match change {
                LeaseChange::Granted(_) => &counters.leases_granted,
                LeaseChange::Revoked(..) => &counters.leases_revoked,
            };
            counter.fetch_add(1, Ordering::Relaxed);
        }
        self.store.counters.work.leases_expired.fetch_add(batch.expired, Ordering::Relaxed);
        if batch.compact.is_some() {
            self.compacting_since.get_or_insert_with(Instant::now);
            self.store.counters.compactions.fetch_add(1, Ordering::Relaxed);
            self.store.hub.compacted();
            self.pruning = true;
        }
    }

    fn supersede(&mut self, entry: &Entry) {
        for previous in entry.changes().iter().filter_map(|change| change.previous.as_ref()) {
            self.old.add(previous);
        }
    }

    /// Evicts the oldest superseded values, down to the limit.
    fn evict(&mut self) {
        self.old.evict(self.limits.old_value_bytes, &self.store.segments);
        self.store.counters.old_value_bytes.store(self.old.bytes() as u64, Ordering::Relaxed);
    }

    fn prune(&mut self) -> bool {
        let committed = self.store.committed_revision();
        let work = self.store.counters.work.clone();
        {
            let mut index = self.store.index.write();
            let started = Instant::now();
            let dropped = index.dropped();
            self.pruning = index.prune(committed, 512);
            work.compacted_versions.fetch_add(index.dropped() - dropped, Ordering::Relaxed);
            self.store.measure(index.size());
            drop(index);
            if self.compacting_since.is_some() {
                work.compacted_a_part(started.elapsed());
            }
        }
        if !self.pruning {
            if let Some(since) = self.compacting_since.take() {
                work.compacted(since.elapsed(), (now_ms() / 1000).max(0) as u64);
            }
            self.old.forget();
            self.evict();
        }
        self.pruning
    }

    /// Deletes segments, after reading back values that are still needed and only there.
    fn trim(&mut self, first_kept: u64) {
        let brought_back = self.old.bring_back(&self.store.segments, first_kept);
        self.evict();
        if let Err(error) = brought_back {
            tracing::warn!(error = chain(&error), "journal not trimmed: an old value cannot be read back");
            return;
        }
        if let Err(error) = self.store.segments.trim(first_kept) {
            tracing::warn!(error = chain(&error), "journal not trimmed");
        }
        // There is more space on the disk, and perhaps the journal is below its limit.
        self.store.room.notify_one();
    }
}

fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_millis() as i64
}
