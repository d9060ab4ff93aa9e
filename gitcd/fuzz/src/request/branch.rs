//! A store with all parts of a branch except Git.

use std::sync::Arc;

use gitcd::backup::{self, Backup};
use gitcd::journal::record::{Record, Write};
use gitcd::journal::{Segments, Writer, recovery};
use gitcd::store::alarms::Alarms;
use gitcd::store::index::{Index, KeyRange};
use gitcd::store::lease::Leases;
use gitcd::store::log::Change;
use gitcd::store::revision::Revision;
use gitcd::store::version::Version;
use gitcd::store::{Handle, Limits, Start, Store};
use tempfile::TempDir;

use super::super::disk;

/// Small, so that a few requests fill several segments.
const SEGMENT_BYTES: u64 = 4096;
/// Small, so that old values are evicted.
const OLD_VALUE_BYTES: usize = 64;

pub(super) struct Branch {
    pub(super) store: Arc<Store>,
    writer: Handle,
    folder: TempDir,
}

impl Branch {
    pub(super) fn start() -> Self {
        let folder = disk::folder();
        let segments = Arc::new(Segments::default());
        let journal = Writer::create(folder.path(), [7; 16], 0, SEGMENT_BYTES, segments.clone());
        let start = Start {
            index: Index::new(Revision::INITIAL),
            leases: Leases::default(),
            committed: Revision::INITIAL,
            journal: journal.expect("the disk has room"),
            segments,
            superseded: Vec::new(),
            alarms: Alarms::read(folder.path()).expect("there are no alarms"),
            merges: Vec::new(),
        };
        let limits = Limits { old_value_bytes: OLD_VALUE_BYTES, ..Limits::default() };
        let (store, writer) = Store::start(start, limits).expect("a thread starts");
        Self { store, writer, folder }
    }

    /// Stops the store, and checks its content against its journal and a backup.
    pub(super) async fn finish(self) {
        self.store.stop().await;
        self.writer.join();
        assert_eq!(self.store.poisoned(), None);
        backed_up(&self.store, &self.folder);
        journaled(&self.store, &self.folder);
    }
}

fn backed_up(store: &Store, folder: &TempDir) {
    let path = folder.path().join("backup");
    let mut bytes = Vec::new();
    let header = backup::write(store, &mut bytes).expect("values can be read");
    std::fs::write(&path, bytes).expect("the disk has room");
    let backup = Backup::read(&path).expect("what was written can be read");
    assert_eq!(backup.header, header);
    assert_eq!(header.revision, store.revision().get());
    let expected: Vec<_> =
        store.with_index(|index, at| index.range(&KeyRange::From(bytes::Bytes::new()), at).cloned().collect());
    let newest = backup.newest();
    assert_eq!(newest.len(), expected.len());
    for (version, (key, revision, put)) in expected.iter().zip(newest) {
        assert_eq!((&version.key, version.mod_revision), (&key, revision));
        same(store, version, Some(&put));
    }
}

fn journaled(store: &Store, folder: &TempDir) {
    let mut writes: Vec<Write> = Vec::new();
    let recovered = recovery::recover(folder.path(), &Segments::default(), |replayed| {
        if let Record::Write(write) = replayed.record {
            writes.push(write);
        }
    });
    assert_eq!(recovered.expect("nothing is damaged").torn_bytes, 0);
    let revisions: Vec<_> = writes.iter().map(|write| write.revision.get()).collect();
    assert_eq!(revisions, (2..=store.revision().get()).collect::<Vec<_>>());
    let log = super::log(store);
    for (entry, write) in log.iter().rev().zip(writes.iter().rev()) {
        assert_eq!((entry.revision, entry.changes().len()), (write.revision, write.changes.len()));
        for (Change { version, .. }, change) in entry.changes().iter().zip(&write.changes) {
            assert_eq!(version.key, change.key);
            same(store, version, change.put.as_ref());
        }
    }
}

fn same(store: &Store, version: &Version, put: Option<&gitcd::journal::record::Put>) {
    assert_eq!(version.is_tombstone(), put.is_none());
    let Some(put) = put else { return };
    assert_eq!(
        (version.create_revision, version.version, version.lease),
        (put.create_revision, put.version, put.lease)
    );
    assert_eq!(version.value(store.segments()).expect("the value is in the journal"), put.value);
}
