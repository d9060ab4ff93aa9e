//! A branch from a backup.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gitcd_core::durable;
use gitcd_core::keyspace::Placement;
use gitcd_core::revision::Revision;
use gitcd_journal::record::{Record, Write};
use gitcd_mvcc::snapshot::{Incarnation, hex};
use gitcd_repo::branch::{self, Action, Branch, Config, Revisions, State};

use super::{OpenError, StateLock, first_snapshot, start_journal, state_folder};
use crate::backup::Backup;

/// What a frame of the journal is filled to.
const FRAME_BYTES: usize = 4 << 20;

/// Half of all revisions: the other half is for writes to come.
const MAX_BUMPED: i64 = i64::MAX / 2;

/// Makes a branch with what a backup has: keys, history since the compaction, leases with their full time to live.
///
/// With `bump`, the newest revision is raised by so much and everything before it is compacted: clients that have seen
/// revisions after the backup was taken then list again instead of taking old news for new.
///
/// Takes about 20 µs a key, for as many bytes of memory as the file has.
///
/// # Errors
/// [`OpenError`], among others if the branch exists. A crash leaves a branch that is refused until it is removed.
pub fn restore(config: &Config, backup: &Backup, bump: Option<i64>) -> Result<Revision, OpenError> {
    // A file is told as what it is; what else stands in the way is found when the branch is made.
    branch::is_absent(&config.repository).map_err(Box::new)?;
    durable::make_folder(&config.repository)?;
    // A folder that is no repository yet has nobody who could serve it.
    let _lock = git2::Repository::open(&config.repository).is_ok().then(|| StateLock::take(config)).transpose()?;
    let incarnation: Incarnation = rand::random();
    let (base, compacted, pairs, writes) = match bump {
        None => (backup.header.base, backup.header.compact_revision, backup.pairs.clone(), &backup.writes[..]),
        Some(bump) => {
            let bumped = backup.header.revision.checked_add(bump).filter(|revision| *revision <= MAX_BUMPED);
            let revision = bumped.ok_or(OpenError::Bump { revision: Revision::new(backup.header.revision), bump })?;
            let pair = |(key, revision, put)| Write {
                revision,
                time_ms: 0,
                client: String::new(),
                changes: vec![gitcd_journal::record::Change { key, put: Some(put) }],
            };
            (revision, revision, backup.newest().into_iter().map(pair).collect(), &[][..])
        }
    };
    let state = State {
        revision: base,
        compact_revision: compacted.min(base),
        incarnation: hex(&incarnation),
        leases: backup.leases.clone(),
    };
    let (ephemeral, committed): (Vec<_>, Vec<_>) =
        pairs.into_iter().partition(|write| config.keys.placement(&write.changes[0].key) == Placement::Ephemeral);
    let time = backup.writes.first().map_or(0, |write| write.time_ms);
    let revisions = Revisions {
        first: base,
        last: base,
        time: if time > 0 { UNIX_EPOCH + Duration::from_millis(time as u64) } else { SystemTime::now() },
        clients: vec!["restored from a backup".to_owned()],
        changes: committed.iter().filter_map(change).collect(),
    };
    // While this is there nobody takes a part for the whole.
    let made = Branch::create_with(config.clone(), &state, &revisions, || {
        let folder = state_folder(config);
        durable::make_folder(&folder)?;
        durable::replace(&folder.join(RESTORING), b"a restore that did not finish\n")
    });
    let branch = made.map_err(Box::new)?;
    let folder = state_folder(config);
    let mark = folder.join(RESTORING);
    let newest = Revision::new(backup.header.revision.max(base));
    write_journal(&folder.join("journal"), incarnation, writes)?;
    let mut snapshot = first_snapshot(incarnation, Revision::new(base), branch.head().metadata);
    snapshot.compacted = Revision::new(compacted);
    snapshot.leases.clone_from(&backup.leases);
    snapshot.ephemeral = ephemeral;
    snapshot.write(&folder)?;
    super::prefixes::record(config, &folder)?;
    std::fs::remove_file(&mark).map_err(|source| OpenError::Folder { action: "remove", path: mark.clone(), source })?;
    durable::sync(&folder)?;
    Ok(newest)
}

/// The file that says that a branch is not complete.
pub(super) const RESTORING: &str = "restoring";

fn change(write: &Write) -> Option<branch::Change> {
    let change = &write.changes[0];
    let put = change.put.as_ref()?;
    let record = branch::Record {
        create_revision: put.create_revision.get(),
        mod_revision: write.revision.get(),
        version: put.version,
        lease: put.lease,
    };
    Some(branch::Change { key: change.key.clone(), action: Action::Put { value: put.value.clone(), record } })
}

fn write_journal(folder: &std::path::Path, incarnation: Incarnation, writes: &[Write]) -> Result<(), OpenError> {
    let failed = |source: gitcd_journal::AppendError| OpenError::Folder {
        action: "write",
        path: folder.to_owned(),
        source: std::io::Error::other(source),
    };
    let segment_bytes = if writes.is_empty() { 1 << 12 } else { 32 << 20 };
    let mut journal = start_journal(folder, incarnation, 0, segment_bytes, &Arc::default())?;
    let mut rest = writes.iter().peekable();
    while rest.peek().is_some() {
        let frame = journal.begin();
        let mut last = Revision::ZERO;
        while frame.len() < FRAME_BYTES
            && let Some(write) = rest.next()
        {
            Record::Write(write.clone()).encode(frame);
            last = write.revision;
        }
        journal.commit(last).map_err(failed)?;
    }
    Ok(())
}
