//! Batches as the writer thread runs them, one for each call: the test decides which commands share a batch.

use bytes::Bytes;
use gitcd_core::fence::Fence;
use gitcd_journal::Segments;
use gitcd_journal::fault::{self, Fault};
use gitcd_journal::recovery::recover;
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::Start;
use crate::index::{Index, KeyRange};
use crate::log::Entry;
use crate::merge::Prepared;
use crate::txn::{Delete, Put};

/// A writer without a thread, and its journal.
pub(crate) struct Disk {
    writer: Writer,
    inbox: mpsc::Receiver<Command>,
    folder: TempDir,
}

/// One command, created anew for each store.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Put(u8, i64),
    Delete(u8),
    DeleteAll,
    Grant(i64),
    Revoke(i64),
    /// At this fraction of the revisions, in 255ths.
    Compact(u8),
}

/// Key, mod revision, create revision, version, lease.
type Pair = (Bytes, i64, i64, i64, i64);

/// All visible state, at every readable revision.
#[derive(Debug, PartialEq)]
pub(crate) struct Seen {
    revision: Revision,
    compacted: Revision,
    pairs: Vec<Vec<Pair>>,
    log: Vec<(i64, Vec<(Bytes, bool)>)>,
    leases: Vec<(i64, Vec<Bytes>)>,
}

fn all_keys() -> KeyRange {
    KeyRange::From(Bytes::new())
}

fn key(name: u8) -> Bytes {
    Bytes::from(vec![b'k', name])
}

fn put(key: Bytes, value: Bytes, lease: i64) -> Op {
    Op::Put(Put { key, value: Some(value), lease: Some(lease), previous: false })
}

/// Returns whether a command succeeded; `None` while it waits.
type Outcome = Box<dyn FnMut() -> Option<Result<(), Error>>>;

fn reply<T: 'static>() -> (Reply<T>, Outcome) {
    let (reply, mut answer) = Reply::channel();
    (reply, Box::new(move || answer.try_recv().ok().map(|answer: Result<T, Error>| answer.map(|_| ()))))
}

fn write(op: Op) -> (Command, Outcome) {
    let (reply, outcome) = reply();
    (Command::Write { op, client: None, reply }, outcome)
}

impl Disk {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let segments = Arc::new(Segments::default());
        let journal = journal::Writer::create(folder.path(), [7; 16], 0, 1 << 16, segments.clone()).unwrap();
        let index = Index::new(Revision::INITIAL);
        let (leases, committed, superseded) = (crate::lease::Leases::default(), index.revision(), Vec::new());
        let start = Start {
            index,
            leases,
            committed,
            journal,
            segments,
            superseded,
            alarms: super::super::alarms::Alarms::default(),
            merges: Vec::new(),
        };
        let (writer, inbox) = Store::assemble(start, Limits::default());
        Self { writer, inbox, folder }
    }

    fn command(&self, step: &Step) -> (Command, Outcome) {
        match *step {
            Step::Put(name, lease) => write(put(key(name), Bytes::from(vec![name]), lease)),
            Step::Delete(name) => write(Op::Delete(Delete { keys: KeyRange::One(key(name)), previous: false })),
            Step::DeleteAll => write(Op::Delete(Delete { keys: all_keys(), previous: false })),
            Step::Grant(id) => {
                let (reply, outcome) = reply();
                (Command::Grant { id, ttl: 600, reply }, outcome)
            }
            Step::Revoke(id) => {
                let (reply, outcome) = reply();
                (Command::Revoke { id, only_if_due: false, client: None, reply }, outcome)
            }
            Step::Compact(share) => {
                let (reply, outcome) = reply();
                let revision = Revision::new(self.writer.store.revision().get() * i64::from(share) / 255);
                (Command::Compact { revision, reply }, outcome)
            }
        }
    }

    /// Runs all commands in one batch, and returns all answers.
    pub(crate) fn batch(&mut self, steps: &[Step]) -> Vec<Result<(), Error>> {
        let (mut commands, outcomes): (VecDeque<_>, Vec<_>) = steps.iter().map(|step| self.command(step)).unzip();
        self.writer.batch(&mut commands);
        assert!(commands.is_empty(), "small commands share a frame");
        outcomes.into_iter().map(|mut outcome| outcome().expect("a batch answers every command")).collect()
    }

    /// Closes the fence once the next batch is durable.
    pub(crate) fn close_in_the_next_batch(&mut self, fence: &Arc<Fence>) {
        self.writer.closes = Some(fence.clone());
    }

    /// Waits for commands from elsewhere, and runs them in one batch, as the writer thread does.
    pub(crate) async fn next_batch(&mut self) {
        let (mut commands, limit) = (Vec::new(), self.writer.limits.batch);
        assert_ne!(self.inbox.recv_many(&mut commands, limit).await, 0, "the store has a sender");
        let mut commands = VecDeque::from(commands);
        self.writer.batch(&mut commands);
        assert!(commands.is_empty(), "small commands share a frame");
    }

    /// Runs a merge, and these commands right before and after it.
    pub(crate) fn merge(&mut self, before: &[Step], prepared: Prepared, after: &[Step]) -> Result<merge::Done, Error> {
        let (reply, mut answer) = Reply::channel();
        let mut commands: VecDeque<_> = before.iter().map(|step| self.command(step).0).collect();
        commands.push_back(Command::Merge { prepared: Box::new(prepared), reply });
        commands.extend(after.iter().map(|step| self.command(step).0));
        while !commands.is_empty() {
            self.writer.batch(&mut commands);
        }
        answer.try_recv().expect("a batch answers every command")
    }

    pub(crate) fn store(&self) -> &Arc<Store> {
        &self.writer.store
    }

    pub(crate) fn see(&self) -> Seen {
        let store = &self.writer.store;
        let index = store.index.read();
        assert_eq!(index.revision(), store.revision(), "the index is not ahead of the durable revision");
        let revisions = index.compacted().get().max(1)..=index.revision().get();
        let all = all_keys();
        let pairs = revisions.map(|revision| {
            let pairs = index.range(&all, Revision::new(revision));
            pairs.map(|v| (v.key.clone(), v.mod_revision.get(), v.create_revision.get(), v.version, v.lease)).collect()
        });
        let log = index.log_from(index.compacted()).map(|entry| {
            let changes = entry.changes().iter();
            (
                entry.revision.get(),
                changes.map(|change| (change.version.key.clone(), change.previous.is_some())).collect(),
            )
        });
        let leases = store.leases.lock();
        let keys = |id| leases.find(id).expect("the lease is listed").keys.iter().cloned().collect();
        Seen {
            revision: index.revision(),
            compacted: index.compacted(),
            pairs: pairs.collect(),
            log: log.collect(),
            leases: leases.list().into_iter().map(|(id, _)| (id, keys(id))).collect(),
        }
    }

    /// Returns the records that recovery would find.
    pub(crate) fn records(&self) -> Vec<Record> {
        let mut records = Vec::new();
        // Of a copy: recovery replaces the newest segment, which the writer still appends to.
        let copy = tempfile::tempdir().expect("the temporary folder is writable");
        for segment in std::fs::read_dir(self.folder.path()).expect("the journal exists").flatten() {
            std::fs::copy(segment.path(), copy.path().join(segment.file_name())).expect("there is room");
        }
        recover(copy.path(), &Segments::default(), |replayed| records.push(replayed.record))
            .expect("the journal is whole");
        for record in &mut records {
            let Record::Write(write) = record else { continue };
            write.time_ms = 0;
            for put in write.changes.iter_mut().filter_map(|change| change.put.as_mut()) {
                put.value_offset = 0;
            }
        }
        records
    }
}

/// The scheduler may suspend a thread after it has reserved a place in the queue, and before it sends.
#[test]
fn who_had_a_place_in_the_queue_when_the_writer_stopped_is_answered() {
    let Disk { writer, inbox, folder: _folder } = Disk::new();
    let store = writer.store().clone();
    let thread = writer.spawn(inbox).unwrap();
    let place = store.commands.try_reserve().unwrap();
    let (reply, mut stopped) = oneshot::channel();
    store.commands.try_send(Command::Stop { reply }).unwrap();
    while !store.commands.is_closed() {
        std::thread::yield_now();
    }
    let (command, mut outcome) = write(put(key(1), Bytes::new(), 0));
    place.send(command);
    thread.join().unwrap();
    assert_eq!(outcome(), Some(Ok(())));
    assert!(stopped.try_recv().is_ok());
}

#[test]
fn a_lease_is_gone_only_after_its_keys() {
    let mut disk = Disk::new();
    disk.batch(&[Step::Grant(1), Step::Put(0, 1)]);
    disk.store()
        .leases
        .lock()
        .keep_alive(1, Instant::now().checked_sub(Duration::from_hours(1)).expect("long after boot"));
    let keep_alive = |disk: &mut Disk| {
        let (reply, mut answer) = Reply::channel();
        disk.writer.batch(&mut VecDeque::from([Command::KeepAlive { id: 1, reply }]));
        answer.try_recv().expect("a batch answers every command")
    };
    // A query does not end the lease, and neither does a revocation that cannot be made durable.
    let (reply, mut answer) = Reply::channel();
    disk.writer.batch(&mut VecDeque::from([Command::Lease { id: 1, keys: true, reply }]));
    let report = answer.try_recv().expect("a batch answers every command").unwrap().expect("the lease exists");
    assert_eq!(report.keys, [key(0)]);
    fault::fail_next(Fault::Full);
    assert_eq!(keep_alive(&mut disk), Err(Error::NoSpace));
    assert_eq!(disk.see().pairs.last().unwrap().len(), 1);
    assert_eq!(keep_alive(&mut disk), Ok(None));
    assert!(disk.see().pairs.last().unwrap().is_empty(), "the key was deleted first");
    let entries = disk.store().log(Revision::new(3), 1);
    assert_eq!(entries[0].client.as_deref(), Some(EXPIRY));
}

const OLD_BYTES: usize = 20_000;
const VALUE_BYTES: usize = 1000;
const KEYS: u8 = 200;

impl Disk {
    /// Puts all keys, in several batches, so that the journal can start another segment in between.
    fn put_all(&mut self, fill: u8) {
        for name in 0..KEYS {
            let (command, mut outcome) = write(put(key(name), Bytes::from(vec![fill; VALUE_BYTES]), 0));
            self.writer.batch(&mut VecDeque::from([command]));
            assert_eq!(outcome(), Some(Ok(())));
        }
    }

    fn compact_all(&mut self) {
        assert_eq!(self.batch(&[Step::Compact(255)]), [Ok(())]);
        // Only versions that are in Git are pruned.
        self.writer.store.advance_committed(self.writer.store.revision());
        while self.writer.prune() {}
    }

    /// Returns the bytes of superseded values in memory: as counted, and as measured.
    fn old_bytes(&self) -> (usize, usize) {
        let store = &self.writer.store;
        let index = store.index.read();
        let all = all_keys();
        let readable = (index.compacted().get()..index.revision().get())
            .flat_map(|revision| index.range(&all, Revision::new(revision)))
            .filter(|version| index.newest(&version.key).is_some_and(|newest| !Arc::ptr_eq(newest, version)));
        // The write at the compact revision itself can be watched, with the previous version.
        let watchable = index.log_from(Revision::ZERO).flat_map(Entry::changes);
        let watchable = watchable.filter_map(|change| change.previous.as_ref());
        let mut old: Vec<&Arc<Version>> = readable.chain(watchable).collect();
        old.sort_by_key(|version| version.mod_revision);
        old.dedup_by_key(|version| version.mod_revision);
        let bytes = old.iter().map(|version| version.bytes_in_memory()).sum();
        (store.counters.old_value_bytes.load(Ordering::Relaxed) as usize, bytes)
    }

    /// Trims all sealed segments.
    fn trim_all(&mut self) {
        let last = self.store().segments.sealed().last().expect("segments are small").0;
        self.writer.trim(last + 1);
        assert!(self.store().segments.sealed().is_empty());
    }
}

/// Values that the journal no longer has stay in memory, one for each key at most; they count, and leave no room for others.
#[test]
fn superseded_values_are_counted_wherever_the_journal_ends() {
    let mut disk = Disk::new();
    disk.writer.limits.old_value_bytes = OLD_BYTES;
    disk.put_all(1);
    disk.compact_all();
    assert_eq!(disk.old_bytes(), (0, 0));
    // Most newest versions are in memory only.
    disk.trim_all();
    disk.put_all(2);
    let (counted, bytes) = disk.old_bytes();
    assert_eq!(counted, bytes);
    let all = usize::from(KEYS) * VALUE_BYTES;
    assert!(counted > 2 * OLD_BYTES && counted <= all, "{counted}");
    // Values outside the last segment are evicted, and read back when it is trimmed.
    disk.put_all(3);
    let stuck = disk.old_bytes();
    assert!(stuck.0 == stuck.1 && stuck.0 <= all, "only values that cannot be evicted: {stuck:?}");
    disk.compact_all();
    // The version before the write at the compact revision may be left.
    let (counted, bytes) = disk.old_bytes();
    assert!(counted == bytes && counted <= VALUE_BYTES, "the compaction drops all others: {counted}, {bytes}");
    disk.put_all(4);
    let (counted, bytes) = disk.old_bytes();
    assert!(counted == bytes && counted <= OLD_BYTES, "{counted}, {bytes}");
    disk.trim_all();
    let (counted, bytes) = disk.old_bytes();
    assert!(counted == bytes && counted > OLD_BYTES && counted <= all, "the values were read back: {counted}, {bytes}");
    disk.compact_all();
    let (counted, bytes) = disk.old_bytes();
    assert!(counted == bytes && counted <= VALUE_BYTES, "{counted}, {bytes}");
}

#[test]
fn a_lease_that_comes_and_goes_in_a_batch_without_room_leaves_no_trace() {
    let mut disk = Disk::new();
    disk.batch(&[Step::Grant(1), Step::Put(0, 1), Step::Put(1, 0)]);
    let before = disk.see();
    for steps in [
        &[Step::Grant(2), Step::Put(0, 2), Step::Revoke(2)][..],
        &[Step::Revoke(1), Step::Grant(1), Step::Put(2, 1)],
        &[Step::Put(1, 1), Step::Put(1, 0), Step::Revoke(1)],
        &[Step::Grant(2), Step::Put(0, 2), Step::Delete(0), Step::Revoke(1), Step::Revoke(2)],
        // Whether a lease exists is unknown before the batch is durable.
        &[Step::Grant(2), Step::Grant(2), Step::Revoke(1), Step::Put(1, 1)],
    ] {
        fault::fail_next(Fault::Full);
        assert_eq!(disk.batch(steps), vec![Err(Error::NoSpace); steps.len()], "{steps:?}");
        assert_eq!(disk.see(), before, "{steps:?}");
    }
    // Once there is space again, everything is as before.
    assert_eq!(disk.batch(&[Step::Revoke(2), Step::Revoke(1)]), [Err(Error::LeaseNotFound), Ok(())]);
    assert_eq!(disk.see().pairs.last().unwrap().len(), 1, "the lease's key was deleted with it");
}

#[test]
fn after_a_failed_fsync_nothing_of_the_batch_is_seen_and_nothing_more_is_taken() {
    let mut disk = Disk::new();
    disk.batch(&[Step::Grant(1), Step::Put(0, 1)]);
    let before = disk.see();
    for _ in 0..2 {
        fault::fail_next(Fault::Fsync);
        for outcome in disk.batch(&[Step::Revoke(1), Step::Grant(2), Step::Put(1, 0)]) {
            assert!(matches!(outcome, Err(Error::Poisoned(_))), "{outcome:?}");
        }
        assert_eq!(disk.see(), before);
    }
}

#[test]
fn only_what_is_written_counts_as_an_fsync() {
    let mut disk = Disk::new();
    disk.batch(&[Step::Grant(1), Step::Put(0, 1)]);
    assert_eq!(disk.batch(&[Step::Grant(1), Step::Delete(9), Step::Revoke(2)]).len(), 3);
    assert_eq!(disk.writer.store.counters.fsyncs.load(Ordering::Relaxed), 1);
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0_u8..4, 0_i64..4).prop_map(|(name, lease)| Step::Put(name, lease)),
        2 => (0_u8..4).prop_map(Step::Delete),
        1 => Just(Step::DeleteAll),
        3 => (1_i64..4).prop_map(Step::Grant),
        2 => (1_i64..4).prop_map(Step::Revoke),
        1 => any::<u8>().prop_map(Step::Compact),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_batch_without_room_is_as_if_it_had_not_been(
        batches in proptest::collection::vec((proptest::collection::vec(any_step(), 1..8), any::<bool>()), 1..12)
    ) {
        let (mut disk, mut healthy) = (Disk::new(), Disk::new());
        for (steps, full) in &batches {
            if *full {
                fault::fail_next(Fault::Full);
                let outcomes = disk.batch(steps);
                let nothing_to_write = fault::heal();
                prop_assert!(nothing_to_write || outcomes.iter().all(Result::is_err), "{:?}", outcomes);
            } else {
                let (outcomes, expected) = (disk.batch(steps), healthy.batch(steps));
                prop_assert_eq!(outcomes, expected);
            }
            prop_assert_eq!(disk.see(), healthy.see());
        }
        prop_assert_eq!(disk.records(), healthy.records());
    }
}

#[test]
fn a_frame_takes_no_more_commands_once_it_is_large() {
    const VALUE_BYTES: usize = 1 << 20;
    const WRITES: u8 = 40;
    let mut disk = Disk::new();
    let value = |name: u8| Bytes::from(vec![name; VALUE_BYTES]);
    let (mut commands, mut outcomes): (VecDeque<_>, Vec<_>) =
        (0..WRITES).map(|name| write(put(key(name), value(name), 0))).unzip();
    let mut frames = 0;
    while !commands.is_empty() {
        let (waiting, counters) = (commands.len(), disk.writer.store.clone());
        let before = counters.counters.journal_bytes.load(Ordering::Relaxed);
        disk.writer.batch(&mut commands);
        let frame = (counters.counters.journal_bytes.load(Ordering::Relaxed) - before) as usize;
        assert!(frame < FRAME_BYTES + VALUE_BYTES + 100, "{frame} bytes");
        assert!(frame >= FRAME_BYTES.min(waiting * VALUE_BYTES), "commands that fit share an fsync: {frame} bytes");
        let answered = outcomes.iter_mut().filter_map(|outcome| outcome()).flatten().count();
        assert_eq!(answered, waiting - commands.len(), "exactly the durable commands are answered");
        frames += 1;
    }
    assert_eq!(frames, WRITES as usize * VALUE_BYTES / FRAME_BYTES);

    let mut replayed = Vec::new();
    recover(disk.folder.path(), &Segments::default(), |record| {
        if let Record::Write(write) = record.record {
            let change = &write.changes[0];
            replayed.push((change.key.clone(), change.put.as_ref().unwrap().value.clone()));
        }
    })
    .unwrap();
    let expected: Vec<_> = (0..WRITES).map(|name| (key(name), value(name))).collect();
    assert!(replayed == expected, "every value is replayed");
}
